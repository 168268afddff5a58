"""The demo's live table: who is near or above a limit right now, as the audit sees it."""

from __future__ import annotations

import sys
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.embedded.demo.summary import LIVE
from kquota_spark.errors import UserError
from kquota_spark.store.reading import open_tables

_ROWS = 14
_EVERY_S = 3.0
_PLAIN_EVERY_S = 15.0


class LiveTable:
    """Redraws in place on a terminal; elsewhere prints the first rows at once, then a table now and then."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_terminal = sys.stdout.isatty()
        self._looked_s = -_PLAIN_EVERY_S
        self._has_rows = False
        self._height = 0
        self._notes: list[str] = []

    def note(self, text: str) -> None:
        """Say once what happened in mid-run."""
        self._notes.append(text)

    def show(self, passed_s: float, of_s: float) -> None:
        """Show the table if it is time to."""
        due_s = _PLAIN_EVERY_S if self._has_rows and not self._is_terminal else _EVERY_S
        if passed_s - self._looked_s < due_s and not self._notes:
            return
        is_said = self._looked_s >= 0 and not self._has_rows
        self._looked_s = passed_s
        rows = self._rows()[:_ROWS]
        self._has_rows = bool(rows)
        if is_said and not rows and not self._notes and not self._is_terminal:
            return
        self._erase()
        for note in self._notes:
            print(f"  * {note}")
        self._notes.clear()
        lines = [f"{passed_s:5.0f} of {of_s:.0f} s   {_TITLES}", *map(_line, rows)]
        if len(lines) == 1:
            lines.append("              (the audit is starting)")
        print("\n".join(lines), flush=True)
        self._height = len(lines)

    def close(self) -> None:
        """Leave the last table on the screen."""
        self._height = 0

    def _erase(self) -> None:
        if self._is_terminal and self._height:
            sys.stdout.write(f"\x1b[{self._height}F\x1b[J")

    def _rows(self) -> list[dict[str, Any]]:
        try:
            with open_tables(self._settings, "decisions") as tables:
                return tables.query(LIVE).dicts()
        except UserError:
            return []  # the job has not made its tables yet


_TITLES = f"{'who':32}{'type':9}{'limit kB/s':>11}{'rate kB/s':>11}{'% of quota':>11}{'throttled':>11}"


def _line(row: dict[str, Any]) -> str:
    who = " / ".join(name for name in (row["bucket_user"], row["bucket_client_id"]) if name)
    kind = "" if row["bucket_user"] else "client "
    mark = "!" if row["quota_used_percent"] > 100 else " "
    return (
        f"            {mark}   {kind + who:32.32}{row['quota_type']:9}{row['limit_per_s'] / 1e3:>11,.0f}"
        f"{row['rate_per_s'] / 1e3:>11,.1f}{row['quota_used_percent']:>11.1f}{row['throttled_ms']:>8,} ms"
    )
