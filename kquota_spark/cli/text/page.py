"""Text for people: wrapped at blanks to the terminal's width, in the strokes and colours that it has."""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import TextIO

from kquota_spark.cli.text.terminal_width import columns_of
from kquota_spark.cli.text.wrapping import folded
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import cut, terminal_text

_BOXES = "├└│─…"
_PLAIN = str.maketrans({"├": "|", "└": "`", "│": "|", "─": "-", "…": "~"})


class Tone(Enum):
    """How a line is coloured, on terminals only."""

    GOOD = "32"
    BAD = "33"
    FAINT = "2"
    TITLE = "1"


def has_colour(stream: TextIO) -> bool:
    """Whether text on this stream may be coloured."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Page:
    """Writes lines of at most so many columns; text of clients must have gone through `terminal_text`."""

    def __init__(self, stream: TextIO | None = None, columns: int | None = None) -> None:
        self._stream = stream or sys.stdout
        self._encoding = self._stream.encoding or "utf-8"
        self._has_colour = has_colour(self._stream)
        self._has_boxes = self.has(_BOXES)
        self.columns = columns or columns_of(self._stream)
        """How many a line may fill."""

    def has(self, characters: str) -> bool:
        """Whether the terminal can show these."""
        return _can_encode(characters, self._encoding)

    def line(self, text: str = "", tone: Tone | None = None) -> None:
        """One line, cut at the right edge."""
        text = cut(self.possible(text), self.columns)
        # The ellipsis of a cut is one more character that it may lack.
        text = text if self._has_boxes else text.translate(_PLAIN)
        self._stream.write(f"\x1b[{tone.value}m{text}\x1b[0m\n" if tone and self._has_colour else f"{text}\n")

    def paragraph(self, label: str, text: str, tone: Tone | None = None, *, indent: int = 9) -> None:
        """A label at the left and its text beside it, wrapped."""
        lead = label.ljust(indent)
        for line in folded(self.possible(text), self.columns - indent):
            self.line(lead + line, tone)
            lead = " " * indent

    def possible(self, text: str) -> str:
        """The text in characters that this terminal has."""
        drawn = text if self._has_boxes else text.translate(_PLAIN)
        return drawn.encode(self._encoding, "backslashreplace").decode(self._encoding)


def say(text: str, stream: TextIO | None = None) -> None:
    """One line of any length, at once; characters that the stream lacks are escaped instead of being a traceback."""
    out = stream or sys.stdout
    encoding = out.encoding or "utf-8"
    out.write(f"{text}\n".encode(encoding, "backslashreplace").decode(encoding))
    out.flush()


def print_as_it_is(text: str) -> None:
    """What another program reads, as it is; on a terminal, what that would act on is escaped.

    Raises:
        UserError: standard output is in an encoding that lacks a character, which must not become another one.
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
