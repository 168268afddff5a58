"""All places where one small change makes a mutant of the code, found in its syntax trees.

Some places say nothing about the tests and are left out: annotations, imports, decorators, assertions, string
contents, texts of errors, and arguments that only type checkers or dataclasses read.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

ROOMS = ("model", "formats", "pipeline", "enforce")
"""Rooms of the package that have mutants."""
_MOST_SHOWN = 60
"""Maximum characters of a statement in a description."""

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}
_LOGIC: dict[type[ast.boolop], tuple[str, str]] = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
_IGNORED_ARGUMENTS = {"zip": {"strict"}, "field": {"init", "repr", "compare", "hash", "kw_only"}}
"""Arguments without a mutant, by function: they state what the type checker cannot know, or shape a dataclass."""
_OF_TYPES = {"NewType", "TypeVar"}


@dataclass(frozen=True, order=True, slots=True)
class Site:
    """One place and its change.

    `start` and `end` are byte offsets in the file. `lines` are the first and last line whose execution evaluates
    the place. A place at import has no function around it.
    """

    path: str
    start: int
    end: int
    line: int
    kind: str
    was: str
    becomes: str
    lines: tuple[int, int]
    is_at_import: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.was} -> {self.becomes or '(nothing)'}"

    def applied(self, source: bytes) -> bytes:
        """The mutant: the file's bytes with this one change."""
        return source[: self.start] + self.becomes.encode() + source[self.end :]


def all_sites(root: Path, only: str = "") -> list[Site]:
    """The sites of a checkout, ordered by path and position.

    Args:
        root: the checkout.
        only: part of the path of the files to take.
    """
    files = [file for room in ROOMS for file in (root / "kquota_spark" / room).rglob("*.py")]
    paths = sorted(file.relative_to(root).as_posix() for file in files)
    return sorted(
        site for path in paths if only in path for site in sites_of(path, (root / path).read_bytes())
    )


def sites_of(path: str, source: bytes) -> list[Site]:
    """The sites of one file."""
    visitor = _Visitor(path, source)
    visitor.visit(ast.parse(source))
    return visitor.found


class _Visitor(ast.NodeVisitor):
    """Collects the sites of a file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Site] = []
        self._path, self._source = path, source
        self._line_starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
        self._lines: tuple[int, int] | None = None
        self._functions = 0

    def visit(self, node: ast.AST) -> None:
        """Visit a node, with the lines of its statement or of the expression in a statement's header."""
        before = self._lines
        if isinstance(node, ast.stmt):
            has_header = hasattr(node, "body") or isinstance(node, ast.Match)
            self._lines = None if has_header else _lines(node)
        elif isinstance(node, ast.expr | ast.pattern) and before is None:
            self._lines = _lines(node)
        super().visit(node)
        self._lines = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Visit the defaults of arguments, which are evaluated outside, and the body."""
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self._visit_inside(node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Visit the body."""
        self._visit_inside([node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Visit the body alone, without decorators and bases."""
        self._visit_all(node.body)

    def visit_If(self, node: ast.If) -> None:
        """Leave out what only type checkers read."""
        if ast.unparse(node.test).endswith("TYPE_CHECKING"):
            self._visit_all(node.orelse)
        else:
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave it out: it states what mypy cannot know."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave it out: up to Python 3.11 its parts have no exact positions."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Drop it; its text has no mutants."""
        self._drop(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        """Drop it."""
        self._drop(node)

    def visit_Break(self, node: ast.Break) -> None:
        """Drop it."""
        self._drop(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Drop a call."""
        if isinstance(node.value, ast.Call):
            self._drop(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Drop an assignment to attributes or elements."""
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._drop(node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Drop one to an attribute; leave out the annotation."""
        if node.value is not None:
            if isinstance(node.target, ast.Attribute):
                self._drop(node)
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Drop it, or change its operator."""
        self._drop(node)
        self._arithmetic(node.target, node.op, node.value)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Change the operator."""
        self._arithmetic(node.left, node.op, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Change one operator of the chain."""
        for left, right in pairwise(node.values):
            self._between("logic", left, _LOGIC[type(node.op)], right)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Change one operator of the chain."""
        operands = pairwise((node.left, *node.comparators))
        for (left, right), operator in zip(operands, node.ops, strict=True):
            self._between("comparison", left, _COMPARISONS[type(operator)], right)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Drop a `not`."""
        if isinstance(node.op, ast.Not):
            start = self._span(node)[0]
            end = start + len(b"not")
            while self._source[end : end + 1] == b" ":
                end += 1
            self._add("negation", start, end, "not", "")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Visit the arguments that matter when the program runs."""
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in _OF_TYPES:
            return
        self.visit(node.func)
        self._visit_all(node.args)
        ignored = _IGNORED_ARGUMENTS.get(name, set())
        self._visit_all([keyword.value for keyword in node.keywords if keyword.arg not in ignored])

    def visit_Constant(self, node: ast.Constant) -> None:
        """Flip a truth value, or add one to a number."""
        start, end = self._span(node)
        was = self._source[start:end].decode()
        if isinstance(node.value, bool):
            self._add("constant", start, end, was, str(not node.value))
        elif isinstance(node.value, int | float) and node.value + 1 != node.value:
            self._add("constant", start, end, was, repr(node.value + 1))

    def _visit_inside(self, nodes: list[ast.stmt] | list[ast.expr]) -> None:
        self._functions += 1
        self._visit_all(nodes)
        self._functions -= 1

    def _visit_all(self, nodes: list[ast.stmt] | list[ast.expr]) -> None:
        for node in nodes:
            self.visit(node)

    def _arithmetic(self, left: ast.expr, operator: ast.operator, right: ast.expr) -> None:
        if type(operator) in _ARITHMETIC and not _is_sequence(left) and not _is_sequence(right):
            self._between("arithmetic", left, _ARITHMETIC[type(operator)], right)

    def _between(self, kind: str, left: ast.expr, change: tuple[str, str], right: ast.expr) -> None:
        """Change an operator, which is between its operands beside parentheses, line ends and comments."""
        was, becomes = change
        start, end = self._span(left)[1], self._span(right)[0]
        pattern = rb"#[^\n]*|(" + rb"\s+".join(re.escape(word.encode()) for word in was.split()) + rb")"
        matches = re.finditer(pattern, self._source[start:end])
        found = next(match for match in matches if match[1] is not None)
        self._add(kind, start + found.start(), start + found.end(), was, becomes)

    def _drop(self, node: ast.stmt) -> None:
        start, end = self._span(node)
        text = " ".join(self._source[start:end].decode().split())
        shown = text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
        self._add("statement", start, end, shown, "pass")

    def _add(self, kind: str, start: int, end: int, was: str, becomes: str) -> None:
        line = self._source.count(b"\n", 0, start) + 1
        lines = self._lines or (line, line)
        site = Site(self._path, start, end, line, kind, was, becomes, lines, self._functions == 0)
        self.found.append(site)

    def _span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """Byte offsets of a node's first byte and of the byte after its last."""
        first, last = _lines(node)
        return self._line_starts[first - 1] + node.col_offset, self._line_starts[last - 1] + (
            node.end_col_offset or 0
        )


def _lines(node: ast.stmt | ast.expr | ast.pattern) -> tuple[int, int]:
    return node.lineno, node.end_lineno or node.lineno


def _is_sequence(node: ast.expr) -> bool:
    """Whether an operator on it makes a text or a list: every mutant of that ends in a TypeError."""
    if isinstance(node, ast.BinOp):
        return _is_sequence(node.left) or _is_sequence(node.right)
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp)
