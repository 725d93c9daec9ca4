"""Small Python functions: the prompt describes one, with two example calls, and the answer is the code with those as tests."""

from __future__ import annotations

import ast
import random
from functools import partial
from typing import Any

from multidraft.training.pocket.corpus.base import Example, Family, Split, register, split_of
from multidraft.training.pocket.corpus.python_sandbox import MAX_CHARS, load_function
from multidraft.training.pocket.corpus.python_tasks import NUMBER_KINDS, WORDS, Args, Task
from multidraft.training.pocket.corpus.python_tasks_text import TEXT_KINDS

KINDS = NUMBER_KINDS + TEXT_KINDS
EXAMPLES = 2
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
    "Write a Python function {name} that takes {args} and returns {goal}. {extras} It should pass: {tests}",
    "Please write a function named {name} in Python. It takes {args}, returns {goal}. {extras} Tests: {tests}",
    "I need a Python function, {name}. The input is {args}. It should return {goal}. {extras} Examples: {tests}",
    "Implement {name} in Python: given {args}, return {goal}. {extras} Use type hints. It must hold that {tests}",
    "How do I write a Python function {name} which gets {args} and returns {goal}? {extras} For example, {tests}",
    "Python task: define {name}. Arguments: {args}. Result: {goal}. {extras} Expected: {tests}",
    "Given that {tests}, write the Python function {name}. It takes {args} and returns {goal}. {extras}",
    "Can you code {name} for me in Python? It accepts {args} and gives back {goal}. {extras} Check that {tests}",
    "Create a typed Python function {name}. It receives {args} and returns {goal}. {extras} Assert that {tests}",
    "For these examples: {tests}, write the Python function {name}. It takes {args} and returns {goal}. {extras}",
)


def example_text(name: str, args: Args, value: object) -> str:
    """The source of a comparison of a call with its value, with double quotes around texts."""
    return f"{name}({', '.join(repr(arg) for arg in args)}) == {value!r}".replace("'", '"')


def edge_cases(task: Task, args: Args) -> list[Args]:
    """Empty and long containers in place of the usual ones, or small to large numbers."""
    kinds = [kind for _, kind in task.params]
    if set(kinds) == {"int"}:
        return [(number,) * len(kinds) for number in (1, 3, 5, 7, 21, 50, 99)]
    long = tuple(LONG.get(kind, arg) for kind, arg in zip(kinds, args))
    empty = tuple(type(arg)() if kind in LONG else arg for kind, arg in zip(kinds, args))
    return [empty, long]


def write_function(task: Task) -> str:
    """The function with type hints and a docstring."""
    params = ", ".join(f"{name}: {kind}" for name, kind in task.params)
    goal = task.goal.replace('"', "'")
    arguments = [f"    {name}: {TYPE_WORDS[kind].replace(' {}', '')}." for name, kind in task.params]
    lines = [f'"""Return {goal}.', "", "Args:", *arguments, '"""', *task.body]
    body = "\n".join(f"    {line}".rstrip() for line in lines)
    return f"def {task.name}({params}) -> {task.returns}:\n{body}"


@register
class PythonCode(Family):
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
        shown = [task.draw() for _ in range(EXAMPLES)]
        cases = [*shown, *(task.draw() for _ in range(HIDDEN_CASES)), *edge_cases(task, shown[0])]
        code = write_function(task)
        namespace: dict[str, Any] = {}
        exec(code, namespace)
        expected = [namespace[task.name](*args) for args in cases]
        examples = [example_text(task.name, args, value) for args, value in zip(shown, expected)]
        prompt = rng.choice(PHRASINGS).format(
            name=task.name,
            args=" and ".join(TYPE_WORDS[kind].format(name) for name, kind in task.params),
            goal=task.goal,
            extras=" ".join(task.extras),
            tests=" and ".join(examples),
        )
        tests = "\n".join(f"assert {example}" for example in examples)
        hidden = {"name": task.name, "arguments": [list(args) for args in cases], "expected": expected}
        return Example(self.name, " ".join(prompt.split()), f"{code}\n\n\n{tests}", hidden)

    def is_correct(self, example: Example, answer: str) -> bool:
        """The function gives the expected values on shown and hidden arguments, and the shown ones are asserted."""
        try:
            return len(answer) <= MAX_CHARS and _passes(example.check, answer.strip())
        except Exception:
            return False


def _passes(check: dict[str, Any], answer: str) -> bool:
    """Run an answer; raises whatever its code raises."""
    tree = ast.parse(answer)
    name, arguments, expected = check["name"], check["arguments"], check["expected"]
    _, *tests = tree.body
    if len(tests) != EXAMPLES or not all(map(partial(_asserts, name), tests, arguments, expected)):
        return False
    function = load_function(tree, name)
    results = [function(*ast.literal_eval(repr(args))) for args in arguments]
    return all(type(r) is type(e) and r == e for r, e in zip(results, expected))


def _asserts(name: str, node: ast.stmt, args: list[Any], value: object) -> bool:
    """Whether a statement asserts that the call of the function with these arguments has this value."""
    match node:
        case ast.Assert(ast.Compare(ast.Call(ast.Name(called), inner, []), [ast.Eq()], [right]), None):
            given = [ast.literal_eval(arg) for arg in inner]
            return called == name and given == args and bool(ast.literal_eval(right) == value)
    return False
