"""Docstrings and comments of the product are in plain English, and say what the arguments are."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.places import ROOT

FILES = sorted((ROOT / "kquota_spark").rglob("*.py"))
MOST_WORDS, LEAST_PARAMETERS = 30, 4
REFUSED = {
    "tell, where report, show or distinguish is meant": r"\b(?:told|tells?|telling)\b",
    "say, where state, print or contain is meant": r"\b(?:says?|said|saying)\b",
    "look, where check, query or read is meant": r"\b(?:looks?|looked|looking)\b(?!-)",
    "stretch, where period is meant": r"\bstretch(?:es)?\b",
    "stand, where is is meant": r"\b(?:stands?|stood)\b",
    "whose": r"\bwhose\b",
    "an opening with Of": r"(?m:^\s*Of )|(?<=[.] )Of ",
    "go on, where continue is meant": r"\b(?:go|goes|going|went|gone) on\b",
    "held back or hurt, where throttled is meant": r"\b(?:held back|holds? back|hurts?)\b",
    "words of the old dialect": r"\b(?:all the same|for want of|of before|made anew|from when on|through when)\b",
    "make good, where recompute is meant": r"\b(?:make|makes|made|making) (?:\w+ ){0,3}good\b",
    "a, where per is meant": (
        r"\d[\d,.]* ?(?:(?:\w+/?){1,2} ){0,2}a (?:second|minute|hour|day|week|month|year|request|line|broker)\b"
        r"|\b(?:once|twice|times|bytes|lines|requests|rows|files|partitions|messages) a (?:second|minute|hour|day)\b"
    ),
}
_SECTION = re.compile(
    r"(?m)^\s*(?:Args|Returns|Raises|Attributes|Yields|Source):\s*$|\n\s*\n|\n(?=\s*[\w.*]+: )"
)


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Those of modules, classes and functions, and the texts below constants and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            values = [each.value for each in node.body if isinstance(each, ast.Expr)]
            constants = [each.value for each in values if isinstance(each, ast.Constant)]
            yield from (each for each in constants if isinstance(each, str))


def _comments(text: str) -> Iterator[str]:
    """Comments on lines that follow each other are one."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = [token for token in tokens if token.type == tokenize.COMMENT]
    for _, lines in groupby(enumerate(found), lambda pair: pair[1].start[0] - pair[0]):
        yield " ".join(token.string.lstrip("# ") for _, token in lines)


def _texts(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    return [*_docstrings(ast.parse(text)), *_comments(text)]


def _sentences(text: str) -> list[str]:
    plain = " ".join(_SECTION.sub(". ", text).split())
    return re.split(r"(?<=[.!?:;])\s+", plain)


def refused(text: str) -> list[str]:
    """Why a text is not plain: the reasons of `REFUSED`."""
    return [reason for reason, pattern in REFUSED.items() if re.search(pattern, text, re.IGNORECASE)]


def test_no_docstring_or_comment_has_a_word_that_readers_stumble_over() -> None:
    found = [(str(file.relative_to(ROOT)), text) for file in FILES for text in _texts(file) if refused(text)]
    assert found == []


def test_no_sentence_of_a_docstring_or_comment_has_more_than_30_words() -> None:
    found = [
        (str(file.relative_to(ROOT)), sentence)
        for file in FILES
        for text in _texts(file)
        for sentence in _sentences(text)
        if len(sentence.split()) > MOST_WORDS
    ]
    assert found == []


def test_a_public_function_with_four_parameters_describes_each() -> None:
    found = []
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                names = [each.arg for each in given if each.arg not in ("self", "cls")]
                described = (ast.get_docstring(node) or "").partition("Args:")[2]
                lacking = [name for name in names if not re.search(rf"(?m)^\s*{name}: \S", described)]
                if len(names) >= LEAST_PARAMETERS and lacking:
                    found.append((str(file.relative_to(ROOT)), node.name, lacking))
    assert found == []


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("May the page be believed: what speaks against it.", []),
        ("What `kquota exporter` says about the tables.", ["say, where state, print or contain is meant"]),
        ("Files.\nOf one day: then they become one.", ["an opening with Of"]),
        ("One row a second, 20 rows a second.", ["a, where per is meant"]),
        ("A look-up costs 2 ms.", []),
        ("After a look nothing is looked at.", ["look, where check, query or read is meant"]),
    ],
)
def test_words_of_the_old_docstrings_are_found(text: str, reasons: list[str]) -> None:
    assert refused(text) == reasons
