"""Run a small untrusted Python function without a subprocess: few constructs, bounded sizes and loops.

The answer's syntax tree is checked against a list of allowed nodes and rewritten so that every operation,
call and container passes a guard. Containers stay flat and short, loops share one budget, and only listed
built-ins and methods can be called (so no recursion); together this bounds time and memory.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MAX_CHARS = 4_000
MAX_SIZE = 1_000
MAX_NUMBER = 10**9
MAX_ROUNDS = 2_000

_NODES = tuple(
    getattr(ast, name)
    for name in (
        "Module FunctionDef arguments arg Return If For Assign AugAssign AnnAssign Expr Name expr_context Constant BinOp "
        "operator Compare cmpop BoolOp boolop UnaryOp unaryop IfExp Call Attribute List Tuple Dict Subscript Slice ListComp "
        "DictComp GeneratorExp keyword comprehension JoinedStr FormattedValue Continue Break Pass"
    ).split()
)
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
}
_METHODS = (
    "append insert get items keys values copy count index upper lower title capitalize strip split join startswith "
    "endswith replace"
).split()
_FLAT_ELEMENTS = (int, float, str, type(None))


class Refused(Exception):
    """The code uses something outside the allowed subset or grows too large."""


def _flat(value: Any) -> Any:
    """Pass on a value of bounded size; containers may hold scalars only, so that nothing grows by nesting."""
    if isinstance(value, (int, float)) and not abs(value) <= MAX_NUMBER:
        raise Refused("number too large")
    if isinstance(value, (str, list, tuple, dict, range)):
        if len(value) > MAX_SIZE:
            raise Refused("value too long")
        elements = value.values() if isinstance(value, dict) else value
        if not isinstance(value, (str, range)) and not all(isinstance(e, _FLAT_ELEMENTS) for e in elements):
            raise Refused("nested container")
    return value


def _scalar(value: Any) -> Any:
    """Pass on a value that may be put into a container."""
    if not isinstance(value, _FLAT_ELEMENTS):
        raise Refused("nested container")
    return value


def _operate(name: str, left: Any, right: Any) -> Any:
    """Compute a binary operation; a product with a text or list, or text formatting, could explode."""
    if name in ("Mult", "Mod") and not all(isinstance(v, (int, float)) for v in (left, right)):
        raise Refused("only numbers can be multiplied or divided")
    return _flat(_OPERATORS[name](left, right))


class _Guard(ast.NodeTransformer):
    """Rewrite checked code so that operations, calls, containers and loops pass the guards."""

    def generic_visit(self, node: ast.AST) -> Any:
        """Refuse every construct that is not listed."""
        if not isinstance(node, _NODES):
            raise Refused(type(node).__name__)
        return super().generic_visit(node)

    def _wrapped(self, guard: str, *nodes: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(guard, ast.Load()), list(nodes), [])

    def _flattened(self, node: ast.expr) -> ast.expr:
        done = self.generic_visit(node)
        return done if isinstance(getattr(node, "ctx", None), ast.Store) else self._wrapped("_flat", done)

    visit_List = visit_Tuple = visit_Dict = visit_ListComp = visit_DictComp = visit_JoinedStr = _flattened

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Names with a leading underscore belong to the guards; built-ins keep their meaning."""
        if node.id.startswith("_") or (node.id in _BUILTINS and not isinstance(node.ctx, ast.Load)):
            raise Refused(node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Decorators would call things; annotations need no evaluation."""
        if node.decorator_list or node.name.startswith("_"):
            raise Refused("decorator or private name")
        node.returns = None
        for arg in (*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs):
            arg.annotation = None
            if arg.arg.startswith("_") or arg.arg in _BUILTINS:
                raise Refused(arg.arg)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Drop the annotation of a variable."""
        if node.value is None:
            raise Refused("declaration without a value")
        return self.visit(ast.Assign([node.target], node.value))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Items that are assigned must be scalars."""
        done = self.generic_visit(node)
        if any(isinstance(target, ast.Subscript) for target in done.targets):
            done.value = self._wrapped("_scalar", done.value)
        return done

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Turn ``x += y`` into ``x = x + y``, which is guarded."""
        current = ast.parse(ast.unparse(node.target), mode="eval").body
        return self.visit(ast.Assign([node.target], ast.BinOp(current, node.op, node.value)))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Compute through ``_operate``; powers and shifts are refused."""
        name = type(node.op).__name__
        if name not in _OPERATORS:
            raise Refused(name)
        return self._wrapped("_operate", ast.Constant(name), self.visit(node.left), self.visit(node.right))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Only built-ins and listed methods can be called."""
        func = node.func
        method = func.attr if isinstance(func, ast.Attribute) and func.attr in _METHODS else None
        if method is None and not (isinstance(func, ast.Name) and func.id in _BUILTINS):
            raise Refused("call")
        done = self.generic_visit(node)
        if method in ("append", "insert"):
            done.args = [self._wrapped("_scalar", arg) for arg in done.args]
        return self._wrapped("_flat", done)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        """A format such as a width of a billion could explode."""
        if node.format_spec is not None:
            raise Refused("format")
        return self.generic_visit(node)

    def _looped(self, node: Any) -> Any:
        done = self.generic_visit(node)
        done.iter = self._wrapped("_bounded", done.iter)
        return done

    visit_For = visit_comprehension = _looped


_BUILTINS: dict[str, Any] = {
    **{f.__name__: f for f in (sum, min, max, len, abs, round, sorted, list, dict, tuple, str, int, bool, float)},
    **{f.__name__: f for f in (any, all, enumerate, zip, reversed)},
    "range": lambda *bounds: _flat(range(*bounds)),
}


def load_function(tree: ast.Module, name: str) -> Callable[..., Any]:
    """Define the only function of a module in a guarded namespace.

    Raises:
        Refused: the code is outside the allowed subset.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if len(functions) != 1 or functions[0].name != name:
        raise Refused("one function of the given name is expected")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    if any(isinstance(node, ast.Attribute) and id(node) not in called for node in ast.walk(tree)):
        raise Refused("a method can only be called")
    rounds = 0

    def bounded(items: Iterable[Any]) -> Iterator[Any]:
        nonlocal rounds
        for item in items:
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise Refused("too many rounds")
            yield item

    guarded = ast.fix_missing_locations(_Guard().visit(ast.Module([functions[0]], [])))
    guards = {"_flat": _flat, "_scalar": _scalar, "_operate": _operate, "_bounded": bounded}
    namespace: dict[str, Any] = {"__builtins__": {}, **_BUILTINS, **guards}
    exec(compile(guarded, "<answer>", "exec"), namespace)
    return namespace[name]
