"""Small Python functions: the prompt describes one, the answer is the code with a worked example call."""

from __future__ import annotations

import ast
import random
from typing import Any

from drafters.training.corpus.base import Example, Split, register, split_of
from drafters.training.corpus.python_sandbox import MAX_CHARS, load_function
from drafters.training.corpus.python_tasks import NUMBER_KINDS, WORDS, Args, Task
from drafters.training.corpus.python_tasks_text import TEXT_KINDS

KINDS = NUMBER_KINDS + TEXT_KINDS
HIDDEN_CASES = 3
LONG: dict[str, Any] = {
    "list[int]": list(range(-5, 21)),
    "list[str]": list(WORDS[::3]),
    "dict[str, int]": {word: i for i, word in enumerate(WORDS[:16])},
}
"""Hidden arguments that meet every threshold of a task from both sides."""
TYPE_WORDS = {
    "int": "an integer {}",
    "str": "a string {}",
    "list[int]": "a list of integers {}",
    "list[str]": "a list of strings {}",
    "dict[str, int]": "a dictionary {} of strings to integers",
}
PHRASINGS = (
    "Write a Python function {name} that takes {args} and returns {goal}. {extras} Show the call {call}.",
    "Please write a function named {name} in Python. It takes {args}, returns {goal}. {extras} Show {call} too.",
    "I need a Python function, {name}. The input is {args}. It should return {goal}. {extras} Example: {call}",
    "Implement {name} in Python: given {args}, return {goal}. {extras} Use type hints and the example {call}.",
    "How do I write a Python function {name} which gets {args} and returns {goal}? {extras} Explain {call}.",
    "Python task: define {name}. Arguments: {args}. Result: {goal}. {extras} Use {call} as an example.",
    "Show the result of {call} for a Python function {name}. It takes {args} and returns {goal}. {extras}",
    "Can you code {name} for me in Python? It accepts {args} and gives back {goal}. {extras} Work out {call}.",
    "Create a typed Python function {name}. It receives {args} and returns {goal}. {extras} Then call {call}.",
    "For the example {call}, write the Python function {name}. It takes {args} and returns {goal}. {extras}",
)


def call_text(name: str, args: Args) -> str:
    """The source of a call, with double quotes around texts."""
    return f"{name}({', '.join(repr(arg) for arg in args)})".replace("'", '"')


def edge_cases(task: Task, args: Args) -> list[Args]:
    """Empty and long containers in place of the usual ones, or small to large numbers."""
    kinds = [kind for _, kind in task.params]
    if set(kinds) == {"int"}:
        return [(number,) * len(kinds) for number in (1, 3, 5, 7, 21, 50, 99)]
    long = tuple(LONG.get(kind, arg) for kind, arg in zip(kinds, args))
    empty = tuple(type(arg)() if kind in LONG else arg for kind, arg in zip(kinds, args))
    return [empty, long]


def describe_arguments(task: Task) -> str:
    """The parameters in words."""
    parts = [TYPE_WORDS[kind].format(name) for name, kind in task.params]
    return " and ".join(parts)


def write_function(task: Task) -> str:
    """The function with type hints and a docstring."""
    params = ", ".join(f"{name}: {kind}" for name, kind in task.params)
    goal = task.goal.replace('"', "'")
    arguments = [f"    {name}: {TYPE_WORDS[kind].replace(' {}', '')}." for name, kind in task.params]
    lines = [f'"""Return {goal}.', "", "Args:", *arguments, '"""', *task.body]
    body = "\n".join(f"    {line}".rstrip() for line in lines)
    return f"def {task.name}({params}) -> {task.returns}:\n{body}"


def write_usage(task: Task, args: Args, value: object) -> str:
    """The worked example: comments with its steps, then the call with its value."""
    call = call_text(task.name, args)
    comments = "\n".join(f"# {line}" for line in ("Example:", *task.trace(*args)))
    return f"{comments}\nprint({call})  # {value}"


@register
class PythonCode:
    """Functions on lists, texts, dictionaries and prices."""

    name = "code"
    title = "Python functions"

    def example(self, rng: random.Random, split: Split) -> Example:
        """Draw a function whose description belongs to ``split``, and run it for the expected values."""
        kind = rng.choice(KINDS)
        while True:
            task = kind(rng)
            if split_of(self.name, task.name, task.goal, task.extras, task.params) == split:
                return self._render(rng, task)

    def _render(self, rng: random.Random, task: Task) -> Example:
        """Write prompt and answer, with hidden cases to compare on."""
        usage, *cases = [task.draw() for _ in range(HIDDEN_CASES + 1)]
        cases += edge_cases(task, usage)
        code = write_function(task)
        namespace: dict[str, Any] = {}
        exec(code, namespace)
        expected = [namespace[task.name](*args) for args in (usage, *cases)]
        prompt = rng.choice(PHRASINGS).format(
            name=task.name,
            args=describe_arguments(task),
            goal=task.goal,
            extras=" ".join(task.extras),
            call=call_text(task.name, usage),
        )
        completion = f"{code}\n\n\n{write_usage(task, usage, expected[0])}"
        hidden = {"name": task.name, "arguments": [list(a) for a in (usage, *cases)], "expected": expected}
        return Example(self.name, " ".join(prompt.split()), completion, hidden)

    def is_correct(self, example: Example, answer: str) -> bool:
        """The function gives the expected values on hidden arguments, and the example call's value is right."""
        try:
            return len(answer) <= MAX_CHARS and _passes(example.check, answer.strip())
        except Exception:
            return False


def _passes(check: dict[str, Any], answer: str) -> bool:
    """Run an answer; raises whatever its code raises."""
    tree = ast.parse(answer)
    name, arguments, expected = check["name"], check["arguments"], check["expected"]
    _, usage = tree.body
    comment = answer.splitlines()[-1].partition(")  # ")[2]
    if not _is_example(usage, name, arguments[0]) or not comment or comment != str(expected[0]):
        return False
    function = load_function(tree, name)
    results = [function(*ast.literal_eval(repr(args))) for args in arguments]
    return all(type(r) is type(e) and r == e for r, e in zip(results, expected))


def _is_example(node: ast.stmt, name: str, args: list[Any]) -> bool:
    """Whether a statement prints the call of the function with these arguments."""
    match node:
        case ast.Expr(ast.Call(ast.Name("print"), [ast.Call(ast.Name(called), inner, [])], [])):
            return called == name and [ast.literal_eval(arg) for arg in inner] == args
    return False
