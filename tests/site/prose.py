"""The running text of a page: its sentences, without code, tables, headings and the targets of links."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r" *```")
_ITEM = re.compile(r"(?:[*-]|\d+\.) +(.*)")
_NO_PROSE = ("|", "#", "<!--", "![")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"``.*?``|`[^`]*`")
_END = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[A-Z0-9(\"*`])")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def paragraphs(markdown: str) -> Iterator[str]:
    """Each paragraph and each item of a list, as one line, with `Code` in place of what stands in backquotes."""
    collected: list[str] = []
    is_code = False
    for line in [*_COMMENT.sub("", markdown).splitlines(), ""]:
        text = line.strip()
        is_fence = _FENCE.match(line) is not None
        item = None if is_code or is_fence else _ITEM.fullmatch(text)
        if is_fence or is_code or item or not text or text.startswith(_NO_PROSE):
            if collected:
                yield _plain(" ".join(collected))
            collected = [item[1]] if item else []
        else:
            collected.append(text)
        is_code ^= is_fence


def sentences(markdown: str) -> Iterator[str]:
    """Each sentence; one that leads to a list or to a block ends there."""
    for paragraph in paragraphs(markdown):
        yield from (sentence for sentence in _END.split(paragraph) if sentence)


def words_of(sentence: str) -> int:
    """How many words: a name in backquotes is one."""
    return len(sentence.split())


def lines_of_text(markdown: str) -> Iterator[str]:
    """Every line that is not code, tables and headings too, without the names in it."""
    is_code = False
    for line in _COMMENT.sub("", markdown).splitlines():
        is_fence = _FENCE.match(line) is not None
        if not is_code and not is_fence:
            # A link to a test has the name of the test.
            yield _plain(re.sub(r"\[[^\]]*\]\([^)]*tests/[^)]*\)", "", line))
        is_code ^= is_fence


def _plain(text: str) -> str:
    return _CODE.sub("Code", _LINK.sub(r"\1", text)).replace("**", "").strip()
