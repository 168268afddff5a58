"""The part of Terraform's language that files of quotas are written in: blocks, plain attributes and maps, comments.

Source: the native syntax specification of HCL. What needs evaluation (variables, functions, templates) is a problem.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Never

# python-hcl2 keeps the last of two equal keys without a word, resolves no escape, and takes 38 s for 5,000 resources.
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|(?:\#|//)[^\n]*|/\*.*?\*/)|(?P<line>\n)|"(?P<string>(?:[^"\\\n]|\\.)*+)"
    |(?P<open>"(?:[^"\\\n]|\\.)*+|/\*.*)
    |(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))|(?P<name>[A-Za-z_][\w-]*)|(?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|([$%])\4\{|([$%])\{", re.DOTALL)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_TEMPLATE = re.compile(r"([$%])(\1*)\{")
_OPENING, _CLOSING = "{[(", "}])"


class Problem(NamedTuple):
    """What could not be read, and where."""

    line: int
    problem: str


@dataclass(frozen=True, slots=True)
class Block:
    """`kind "label" "label" { ... }`; a value is a text, a number as its text, or a map of those."""

    line: int
    kind: str
    labels: tuple[str, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)


class Attribute(NamedTuple):
    """`name = value`, in a block or in a map."""

    line: int
    value: str | Number | dict[str, Attribute]


class Number(str):
    """The text of a number, to be told from a text in quotes."""

    __slots__ = ()


class _Token(NamedTuple):
    line: int
    kind: str
    """A group of `_TOKEN`, or `end`; `open` is a text or comment without its end."""
    text: str


class _Broken(Exception):
    """Nothing after this place can be understood."""


def read_blocks(text: str, kinds: frozenset[tuple[str, str]]) -> tuple[list[Block], list[Problem]]:
    """The blocks of these kinds and first labels, and what could not be read: other blocks too are problems."""
    parser = _Parser(text)
    blocks: list[Block] = []
    try:
        while (token := parser.next_on_any_line()).kind != "end":
            if (block := parser.block(token, kinds)) is not None:
                blocks.append(block)
    except _Broken as error:
        parser.problems.append(Problem(parser.token.line, str(error)))
    return blocks, parser.problems


def quoted(text: str) -> str:
    """A text in quotes that means just that: no template, and no character that ends a line."""
    # Of several dollars before a brace all but the last are written as escapes: $${ then has one reading.
    safe = _TEMPLATE.sub(lambda found: f"{_escape(found[1]) * len(found[2])}{found[1] * 2}{{", _escaped(text))
    return f'"{safe}"'


def _escaped(text: str) -> str:
    return "".join(
        f"\\{char}" if char in '"\\' else char if char.isprintable() else _escape(char) for char in text
    )


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self.problems: list[Problem] = []
        self.token = _Token(1, "line", "")

    def next(self) -> _Token:
        self.token = next(self._tokens)
        return self.token

    def next_on_any_line(self) -> _Token:
        while self.next().kind == "line":
            pass
        return self.token

    def problem(self, line: int, problem: str) -> None:
        self.problems.append(Problem(line, problem))

    def block(self, first: _Token, kinds: frozenset[tuple[str, str]]) -> Block | None:
        """The block whose first word was read; None for one that is not wanted."""
        labels = self._labels(first)
        if (first.text, labels[0] if labels else "") not in kinds:
            wanted = " or ".join(f'{kind} "{label}"' for kind, label in sorted(kinds))
            self.problem(
                first.line, f"{first.text[:60]} {' '.join(labels)[:60]}".strip() + f": only {wanted} is read"
            )
            self._skip_braces()
            return None
        return self._body(Block(first.line, first.text, labels), may_nest=True)

    def _labels(self, first: _Token) -> tuple[str, ...]:
        labels = []
        while (token := self.next()).kind in ("string", "name"):
            labels.append(self._text(token) if token.kind == "string" else token.text)
        if first.kind != "name" or token.text != "{":
            raise _Broken(f"{(token if first.kind == 'name' else first).text[:60]!r}, expected a block")
        return tuple(labels)

    def _body(self, block: Block, *, may_nest: bool) -> Block:
        while (token := self.next_on_any_line()).text != "}" or token.kind == "string":
            if token.kind != "name":
                self._unexpected(token, "name = value or }")
            follower = self.next()
            if follower.kind == "sign" and follower.text == "=":
                self._attribute(token, block.attributes, may_nest=may_nest)
            elif follower.kind == "sign" and follower.text == "{" and may_nest:
                block.blocks.append(self._body(Block(token.line, token.text, ()), may_nest=False))
            else:
                self._unexpected(follower, f"= after {token.text[:60]}")
        return block

    def _attribute(self, name: _Token, into: dict[str, Attribute], *, may_nest: bool) -> None:
        """The value after `=`, and what has to follow it."""
        key = self._text(name) if name.kind == "string" else name.text
        token = self.next()
        value: str | Number | dict[str, Attribute] | None = None
        if token.kind == "string":
            value = self._text(token)
        elif token.kind == "number":
            value = Number(token.text)
        elif token.text == "{" and may_nest:
            value = self._map()
        else:
            self._unexpected(
                token, f"a text in quotes, a number or a map as {key[:60]}; nothing is evaluated"
            )
        if key in into:
            self.problem(name.line, f"{key[:60]} stands here twice, expected once")
        into[key] = Attribute(name.line, value)

    def _map(self) -> dict[str, Attribute]:
        found: dict[str, Attribute] = {}
        while (token := self.next_on_any_line()).text != "}" or token.kind == "string":
            if token.kind == "sign" and token.text == "," and found:
                continue
            if token.kind not in ("name", "string"):
                self._unexpected(token, "key = value or }")
            if (sign := self.next()).kind != "sign" or sign.text not in "=:":
                self._unexpected(sign, f"= after {token.text[:60]}")
            self._attribute(token, found, may_nest=False)
        return found

    def _text(self, token: _Token) -> str:
        def plain(found: re.Match[str]) -> str:
            code = found[1] or found[2]
            if code is not None and int(code, 16) <= 0x10FFFF:
                return chr(int(code, 16))
            if found[3] in _PLAIN:
                return _PLAIN[found[3]]
            if found[4] is not None:
                return f"{found[4]}{{"
            msg = "a template, expected plain text" if found[5] else f"no escape of HCL: {found[0][:12]!r}"
            raise _Broken(msg)

        # Terraform normalises its texts, so a name cannot be spelled in any other way.
        return unicodedata.normalize("NFC", _ESCAPE.sub(plain, token.text))

    def _skip_braces(self) -> None:
        depth = 1
        while depth:
            token = self.next()
            if token.kind in ("end", "open"):
                self._unexpected(token, "}")
            if token.kind == "sign":
                depth += (token.text in _OPENING) - (token.text in _CLOSING)

    def _unexpected(self, token: _Token, expected: str) -> Never:
        found = "the end of the file" if token.kind == "end" else repr(token.text[:60])
        raise _Broken(f"{found}, expected {expected}")


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for found in _TOKEN.finditer(text):
        kind = str(found.lastgroup)
        if kind != "blank":
            yield _Token(line, kind, found[kind])
        line += found[0].count("\n")
    while True:
        yield _Token(line, "end", "")
