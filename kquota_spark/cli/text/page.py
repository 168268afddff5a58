"""Text for people: wrapped at blanks to the terminal's width, with the strokes and colours that the terminal has."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from enum import Enum
from typing import TextIO

from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import character_width, cut, terminal_text, width

PIPE_COLUMNS = 100
"""Columns of a text for a pipe or a file, and of a terminal that reports no width."""
_MOST_LINES = 4
"""Maximum lines of one word: a client id may have thousands of characters."""
_BOXES = "├└│─…"
_PLAIN = str.maketrans({"├": "|", "└": "`", "│": "|", "─": "-", "…": "~"})


class Tone(Enum):
    """The colour of a text, on terminals only."""

    GOOD = "32"
    BAD = "33"
    OVER = "31"
    FAINT = "2"
    TITLE = "1"


def columns_of(stream: TextIO | None = None) -> int:
    """Columns that a command may fill: the width of the stream's terminal (default standard output).

    Without a terminal it is the variable COLUMNS, else `PIPE_COLUMNS`. The terminal's own answer comes first: an
    exported COLUMNS does not follow a window that changes its size.
    """
    out = stream or sys.stdout
    if out.isatty():
        try:
            columns = os.get_terminal_size(out.fileno()).columns
        except OSError:
            columns = 0
        if columns > 0:
            return columns
    return int(os.environ["COLUMNS"]) if is_width_asked() else PIPE_COLUMNS


def is_width_asked() -> bool:
    """Whether COLUMNS sets the width of a text for a pipe or a file; otherwise tables there are not cut."""
    asked = os.environ.get("COLUMNS", "")
    return asked.isascii() and asked.isdecimal() and int(asked) > 0


def encodable(text: str, encoding: str) -> str:
    """The text with escapes for characters that the encoding lacks."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def folded(text: str, columns: int) -> Iterator[str]:
    """Escaped text in lines of at most `columns` (2 or more), broken at blanks, else inside a long word."""
    # Rich wraps by width too, but takes a tenth of a second to load, and a word of 60,000 characters would fill pages.
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


def has_colour(stream: TextIO) -> bool:
    """Whether text on this stream may be coloured."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Page:
    """Writes lines of limited width. Text from clients must have passed `terminal_text`."""

    def __init__(self, stream: TextIO | None = None, columns: int | None = None) -> None:
        self._stream = stream or sys.stdout
        self._encoding = self._stream.encoding or "utf-8"
        self._has_colour = has_colour(self._stream)
        self._has_boxes = self.has(_BOXES)
        self.columns = columns or columns_of(self._stream)
        """Maximum columns of a line."""

    def has(self, characters: str) -> bool:
        """Whether the terminal can show these characters."""
        return _can_encode(characters, self._encoding)

    def line(self, text: str = "", tone: Tone | None = None) -> None:
        """Write one line, cut at the right edge."""
        text = cut(self.possible(text), self.columns)
        # The terminal may lack the ellipsis of a cut as well.
        text = text if self._has_boxes else text.translate(_PLAIN)
        self._stream.write(f"\x1b[{tone.value}m{text}\x1b[0m\n" if tone and self._has_colour else f"{text}\n")

    def paragraph(self, label: str, text: str, tone: Tone | None = None, *, indent: int = 9) -> None:
        """Write a label at the left and its text beside it, wrapped.

        Args:
            label: text at the left.
            text: escaped; wrapped at blanks.
            tone: colour of all lines; None for none.
            indent: columns before the text.
        """
        lead = label.ljust(indent)
        for line in folded(self.possible(text), self.columns - indent):
            self.line(lead + line, tone)
            lead = " " * indent

    def possible(self, text: str) -> str:
        """The text in characters that this terminal has."""
        return encodable(text if self._has_boxes else text.translate(_PLAIN), self._encoding)


def print_line(text: str, stream: TextIO | None = None) -> None:
    """Write one line of any length and flush it; characters that the stream lacks are escaped."""
    out = stream or sys.stdout
    out.write(encodable(f"{text}\n", out.encoding or "utf-8"))
    out.flush()


def print_as_it_is(text: str) -> None:
    """Print a text for another program, unchanged. On a terminal, control characters are escaped.

    Raises:
        UserError: the encoding of standard output lacks a character, which must not be replaced.
    """
    if sys.stdout.isatty():
        text = "\n".join(map(terminal_text, text.split("\n")))
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError as error:
        raise UserError(
            f"standard output is in {error.encoding}, which lacks {error.object[error.start]!r}: use kquota export "
            "--to FILE"
        ) from error


def _can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
