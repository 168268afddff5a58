"""`kquota top` on a terminal through Textual: keys in, the lines of `cli.top.page` out. Imported only for drawing.

One widget draws the whole screen. A table of widgets costs more per refresh than the query, and would cut and mark up
names by its own rules. Colours are those of the terminal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from dataclasses import replace
from types import FrameType
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key
from textual.strip import Strip
from textual.widget import Widget

from kquota_spark.cli.text.page import Tone
from kquota_spark.cli.top.feed import Feed
from kquota_spark.cli.top.keys import Room, after_key, at_width, with_answer
from kquota_spark.cli.top.lines import Line
from kquota_spark.cli.top.page import View, most_scroll, screen
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import character_width
from kquota_spark.process.clock import now_ms

_STYLES = {
    None: Style(),
    Tone.TITLE: Style(bold=True),
    Tone.GOOD: Style(bold=True),
    Tone.FAINT: Style(dim=True),
    Tone.BAD: Style(color="yellow"),
    Tone.OVER: Style(color="red"),
}
_CLOSING_S = 1.0


class Board(Widget):
    """A widget that fills the whole screen with lines."""

    DEFAULT_CSS = "Board { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self._view: View | None = None
        self._lines: list[Line] = []

    def draw(self, view: View) -> None:
        """Show a view; called again after every change."""
        self._view = view
        self._lines = screen(view, now_ms(), self.size.width, self.size.height)
        self.refresh()

    def on_resize(self) -> None:
        """Lay out again for the new size."""
        if self._view is not None:
            self.draw(self._view)

    def render_line(self, y: int) -> Strip:
        """One line of the screen, when Textual requests it."""
        line = self._lines[y] if y < len(self._lines) else Line()
        chosen = Style(reverse=line.is_chosen)
        # Terminals differ in where they place a mark without a width.
        pieces = (("".join(filter(character_width, text)), tone) for text, tone in line.pieces)
        segments = [Segment(text, _STYLES[tone] + chosen) for text, tone in pieces]
        return Strip(segments).adjust_cell_length(self.size.width, chosen)


class TopApp(App[None]):
    """The program; `view` is all of its state."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(self, feed: Feed, view: View) -> None:
        super().__init__(ansi_color=True)
        self._feed = feed
        self._view = view
        self._is_reading = False

    def compose(self) -> ComposeResult:
        """The only widget."""
        yield Board()

    def on_mount(self) -> None:
        """Read at once, and then at each interval; the first frame does not wait for the tables."""
        self.call_after_refresh(self._draw)
        self._view = at_width(self._view, self.size.width)
        self._ask()
        self.set_interval(self._view.interval_ms / 1_000, self._ask)
        self.set_interval(1.0, self._draw)

    def on_resize(self) -> None:
        """Read again if one bucket is shown: its view is laid out for the width of the terminal."""
        self._view = at_width(self._view, self.size.width)
        if self._view.question.selected is not None:
            self._ask(even_paused=True)

    def on_key(self, event: Key) -> None:
        """Change the view by a key."""
        event.stop()
        room = Room(max(self.size.height - 4, 1), most_scroll(self._view, *self.size))
        after = after_key(self._view, event.key, event.character or "", room)
        if after is None:
            self.exit()
            return
        is_other = after.question != self._view.question or after.is_paused < self._view.is_paused
        self._view = after
        self._draw()
        if is_other:
            self._ask(even_paused=True)

    def _draw(self) -> None:
        self.query_one(Board).draw(self._view)

    def _ask(self, *, even_paused: bool = False) -> None:
        if self._is_reading or (self._view.is_paused and not even_paused):
            return
        self._is_reading = True
        self.run_worker(self._read())

    async def _read(self) -> None:
        """Read until the answer belongs to the present question; keys do not wait."""
        question = None
        while question != self._view.question:
            question = self._view.question
            try:
                answer = await asyncio.to_thread(self._feed.read, question, is_frozen=self._view.is_paused)
            except UserError as error:
                self._view = replace(self._view, error=f"{error}; trying on")
            else:
                self._view = with_answer(self._view, answer)
            self._draw()
        self._is_reading = False


def watch(feed: Feed, view: View) -> None:
    """Show the screen until the user quits; the terminal is restored."""
    app = TopApp(feed, view)

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        # The terminal is gone, so a write to it would wait for ever.
        closing = threading.Thread(target=feed.close, daemon=True)
        closing.start()
        closing.join(_CLOSING_S)
        os._exit(128 + signal.SIGHUP)

    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, hang_up)
    signal.signal(signal.SIGTERM, lambda _number, _frame: app.exit())
    app.run(mouse=False)
