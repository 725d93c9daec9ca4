"""Mutation testing by hand: change one thing in a module at a time and see whether its tests notice.

    python -m tests.mutation MODULE.py [TEST.py…] [--every N]

Each mutant runs in a fork of a process that has imported already what cannot depend on the module. Prints the survivors
as ``file:line: what was changed`` and the share of mutants that were killed.
"""

import argparse
import ast
import copy
import gc
import importlib.abc
import importlib.util
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARED |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
COMPUTED |= {ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "argmax": "argmin", "argmin": "argmax", "sum": "prod"}
SKIPPED = ("returns", "annotation", "decorator_list", "exc", "msg")
"""Parts of nodes that no mutant changes: types, decorators and messages; nor is ``strict=`` changed, which checks."""
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly")
PROJECT = ("app", "drafters", "multidraft", "storage", "tests")
BELOW = {"multidraft": ("drafters", "storage")}
"""By package, those of the project that import nothing of it (contracts in ``pyproject.toml``)."""
TESTS = {
    "verify": "verify_trees verify",
    "recorded": "recorded outcomes",
    "walk": "walk_by_hand walk",
    "elimination": "elimination registry settings",
    "exp3": "exp3 settings",
    "hedge": "hedge ada_normal_hedge settings",
    "posterior": "posterior registry settings",
    "rate_hedge": "rate_hedge_decisions settings rate_hedge",
    "settings": "settings invalid",
    "specs": "registry invalid",
    "static": "static registry settings",
    "ucb": "ucb settings",
}
"""Tests of a module by their files in the folder that mirrors its own, fastest first, where not one bears its name."""


def tests_of(module: Path) -> list[str]:
    """The files of tests of a module."""
    return [f"tests/{module.parent}/test_{name}.py" for name in TESTS.get(module.stem, module.stem).split()]


def mutants(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Change the tree under ``node`` in one place, yield the line and what was changed, and change it back."""
    for name, value in list(ast.iter_fields(node)):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if name in SKIPPED or not isinstance(child, ast.AST) or getattr(child, "arg", "") == "strict":
                continue
            for changed in changes(child):
                place(node, name, index, changed)
                before, after = (ast.unparse(each).splitlines()[0] for each in (child, changed))
                yield child.lineno if hasattr(child, "lineno") else 0, f"{before}  →  {after}"
                place(node, name, index, child)
            yield from mutants(child)


def place(node: ast.AST, name: str, index: int | None, child: ast.AST) -> None:
    """Put ``child`` where another stood."""
    if index is None:
        setattr(node, name, child)
    else:
        getattr(node, name)[index] = child


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Changed copies of one node."""
    new = copy.copy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARED:
            new.ops = [COMPARED[type(op)]()]
        case ast.BinOp(op=op) if type(op) in COMPUTED:
            new.op = COMPUTED[type(op)]()
        case ast.AugAssign(op=op) if type(op) in COMPUTED:
            new.op = COMPUTED[type(op)]()
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            new = operand
        case ast.IfExp(test=test) if not negated_itself(test):
            new.test = ast.UnaryOp(ast.Not(), test)
        case ast.If(test=test) | ast.While(test=test) if not negated_itself(test):
            new.test = ast.UnaryOp(ast.Not(), test)
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value) | float(value)):
            new.value = value + 1
        case ast.Call(func=ast.Name(id=name)) if name in CALLED and name != "sum":
            new.func = ast.Name(CALLED[name], ast.Load())
        case ast.Call(func=ast.Attribute(attr=name)) if name in CALLED:
            new.func = copy.copy(node.func)
            new.func.attr = CALLED[name]
        case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
            new.value = ast.Constant(None)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            new = ast.Pass()
        case ast.Continue():
            new = ast.Break()
        case ast.Break():
            new = ast.Continue()
        case _:
            return
    yield ast.fix_missing_locations(ast.copy_location(new, node))


def negated_itself(test: ast.AST) -> bool:
    """Whether a change of a condition itself is its negation, or it is constant."""
    match test:
        case ast.Compare(ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
            return True
        case ast.UnaryOp(op=ast.Not()) | ast.Constant():
            return True
    return False


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a module from a changed tree."""

    def __init__(self, name: str, path: Path, tree: ast.Module):
        self.name, self.path, self.tree = name, path, tree

    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def create_module(self, spec):
        return None

    def exec_module(self, module) -> None:
        exec(compile(self.tree, str(self.path), "exec"), module.__dict__)


def import_all_but(name: str, tests: list[str]) -> None:
    """Import what ``tests`` import, but for the modules that may import the module ``name``."""
    import pytest
    import torch

    torch.set_num_threads(1)
    with open(os.devnull, "w") as silent, redirect_stdout(silent):
        pytest.main([*tests, "--collect-only", *OPTIONS])
    package = name.split(".")[0]
    for module in list(sys.modules):
        if (top := module.split(".")[0]) in PROJECT and top not in BELOW.get(package, ()):
            del sys.modules[module]
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the memory of all that was imported


def run(name: str, path: Path, tree: ast.Module, tests: list[str], limit: int) -> tuple[bool, float]:
    """Whether the tests fail in a fork, or need more than ``limit`` seconds of the processor, and what they needed."""
    if not (pid := os.fork()):
        import pytest

        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        sys.meta_path.insert(0, Instead(name, path, tree))
        os._exit(int(pytest.main([*tests, "-x", *OPTIONS])))
    _, status, used = os.wait4(pid, 0)
    return status != 0, used.ru_utime + used.ru_stime


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="try every Nth mutant only")
    options = parser.parse_args()
    options.tests = options.tests or tests_of(options.module)
    name = ".".join(options.module.with_suffix("").parts)
    import_all_but(name, options.tests)
    tree = ast.parse(options.module.read_text(encoding="utf-8"))
    failed, seconds = run(name, options.module, tree, options.tests, 3600)
    if failed:
        sys.exit("the tests fail on the module as it is")
    limit = 2 + int(2 * seconds)  # some mutants never end
    tried = killed = 0
    for number, (line, change) in enumerate(mutants(tree)):
        if number % options.every:
            continue
        tried += 1
        if run(name, options.module, tree, options.tests, limit)[0]:
            killed += 1
        else:
            print(f"{options.module}:{line}: {change}", flush=True)
    print(f"{options.module}: {killed} of {tried} mutants killed ({100 * killed / tried:.0f} %)")


if __name__ == "__main__":
    main()
