"""Escaped text in lines of a width, broken at blanks."""

from __future__ import annotations

from collections.abc import Iterator

from kquota_spark.formats.text.escape import character_width, cut, width

# Rich wraps by width too, but loads in a tenth of a second and gives a word of 60,000 characters all its lines.
_MOST_LINES = 4
"""Lines of one word: a client id may have thousands of characters."""


def folded(text: str, columns: int) -> Iterator[str]:
    """Lines of at most so many columns, broken at blanks; a longer word is continued on the next line.

    Args:
        text: escaped text of one line.
        columns: at least 2, the width of one wide character.
    """
    line, used = "", 0
    for word in text.split(" "):
        for part in _parts(cut(word, _MOST_LINES * columns), columns):
            of_part = width(part)
            if line and used + 1 + of_part > columns:
                yield line
                line, used = "", 0
            line, used = (f"{line} {part}", used + 1 + of_part) if line else (part, of_part)
    yield line


def _parts(word: str, columns: int) -> Iterator[str]:
    part, used = "", 0
    for char in word:
        of_char = character_width(char)
        if used + of_char > columns:
            yield part
            part, used = "", 0
        part, used = part + char, used + of_char
    yield part
