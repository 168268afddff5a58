"""Messages, help and pages that programs print are in plain English too: short sentences, no phrase that pages lack."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.site.prose import sentences, words_of
from tests.support.sources import trees
from tests.unit.docs.test_plain_english import MEAN_WORDS, MOST_WORDS, REFUSED

_NO_PROSE = re.compile(
    r"\s*(?:select|with \w+ as|create|copy|epoch_ms)\b|.*\bselect\b.*\bfrom\b|(?:\s*\w+:[^\n]*\n){3}",
    re.DOTALL | re.IGNORECASE,
)
"""SQL, and files of settings."""
_ENTRY = re.compile(r"\n|; ")
"""What parts the entries of a legend, and the lines of a page."""


def _parts(node: ast.AST) -> list[ast.expr]:
    return node.values if isinstance(node, ast.JoinedStr) else []


def _text(node: ast.expr) -> str:
    """A text as it is written, `X` for what is filled in; empty for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) or "X" for value in values)
    return ""


def _shown(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that people may see: of three words or more, no docstrings."""
    nodes = list(ast.walk(tree))
    hidden = {node.value for node in nodes if isinstance(node, ast.Expr)}
    hidden |= {part for node in nodes for part in _parts(node)}
    for node in nodes:
        if isinstance(node, ast.expr) and node not in hidden:
            text = _text(node)
            if len(text.split()) > 2 and not _NO_PROSE.match(text):
                yield text


@cache
def _messages() -> list[tuple[str, str]]:
    return [(name, text) for name, tree in trees().items() for text in _shown(tree)]


def test_the_sentences_of_messages_are_short() -> None:
    entries = [(name, entry) for name, text in _messages() for entry in _ENTRY.split(text)]
    found = [(name, sentence) for name, entry in entries for sentence in sentences(entry)]
    words = [words_of(sentence) for _, sentence in found]
    print(f"{len(words)} sentences, {sum(words) / len(words):.1f} words on average, {max(words)} at most")
    assert [each for each in found if words_of(each[1]) > MOST_WORDS] == []
    assert sum(words) / len(words) <= MEAN_WORDS


def test_no_message_has_a_phrase_that_readers_stumble_over() -> None:
    found = [
        (name, reason, text)
        for name, text in _messages()
        for reason, phrase in REFUSED.items()
        if re.search(rf"\b(?:{phrase})", text.lower())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("raise UserError(f'{path}: cannot be read: {why}')", ["X: cannot be read: X"]),
        ("add('--at', help='the time ' 'of the quotas')", ["the time of the quotas"]),
        ("say('the job has ended' if is_end else 'the job begins')", ["the job has ended", "the job begins"]),
        ("'what this module is'", []),
        ("names.update('two words')", []),
        ("query('select a from b where c')", []),
    ],
)
def test_messages_are_found(code: str, shown: list[str]) -> None:
    assert list(_shown(ast.parse(code))) == shown
