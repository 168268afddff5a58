"""Lines of the screen of `kquota top`: escaped pieces of text, each in a tone. Knows no terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.page import Tone as PageTone
from kquota_spark.formats.text.escape import cut
from kquota_spark.reports.timeline.top_buckets import LIMIT_PERCENT, NEAR_PERCENT


class Tone(Enum):
    """How a piece of a line looks."""

    PLAIN = "plain"
    STRONG = "strong"
    FAINT = "faint"
    NEAR = "near"
    OVER = "over"


_OF_PAGE = {
    None: Tone.PLAIN,
    PageTone.GOOD: Tone.STRONG,
    PageTone.BAD: Tone.NEAR,
    PageTone.FAINT: Tone.FAINT,
    PageTone.TITLE: Tone.STRONG,
}


class Piece(NamedTuple):
    """Escaped text in one tone."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Line:
    """A line; the chosen one is drawn reversed."""

    pieces: Sequence[Piece] = ()
    is_chosen: bool = False


def line_of(text: str, tone: Tone = Tone.PLAIN) -> Line:
    """A line in one tone."""
    return Line([Piece(text, tone)])


def tone_of(percent: float | None) -> Tone:
    """The tone of a part of a limit."""
    if percent is None or percent < NEAR_PERCENT:
        return Tone.PLAIN
    return Tone.OVER if percent > LIMIT_PERCENT else Tone.NEAR


class ScreenPage(Page):
    """A page that keeps its lines instead of writing them; the screen of `top` is always UTF-8."""

    def __init__(self, columns: int) -> None:
        super().__init__(io.StringIO(), columns)
        self.lines: list[Line] = []

    def has(self, characters: str) -> bool:
        """Every character: `top` starts on terminals in UTF-8 only."""
        return True

    def line(self, text: str = "", tone: PageTone | None = None) -> None:
        """One line, cut at the right edge."""
        self.lines.append(line_of(cut(text, self.columns), _OF_PAGE[tone]))
