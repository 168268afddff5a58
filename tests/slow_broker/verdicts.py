"""Judges kept runs as `kquota slow` does, and prints what was named against what was made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.model.interference.suspects import SlowBroker, slow_broker
from kquota_spark.reports.slow.reading import of_files
from tests.slow_broker.run import LOG_FILE, RUN_FILE

_BROKER = 1
_LINE = "{:<13} {:>2} {:>5}  {:<6} {:>5}  {:<24} {}"


class Judged(NamedTuple):
    """One run: what was made, and what was found."""

    name: str
    made: dict[str, Any]
    found: SlowBroker

    @property
    def named(self) -> list[str]:
        """Users of the named suspects, in order."""
        return [suspect.client[0] or "" for suspect in self.found.suspects if suspect.is_named]

    @property
    def is_right(self) -> bool:
        """Whether the antagonist is named first, or in a calm run nobody."""
        made: str | None = self.made["antagonist"]
        return self.named[:1] == ([] if made is None else [made])


def judged(folder: Path) -> Judged:
    """The verdict on a kept run.

    Args:
        folder: of `record_run`.
    """
    made = json.loads((folder / RUN_FILE).read_text())
    period = made["since_ms"], made["to_ms"]
    read = of_files(Settings(), [folder / LOG_FILE], period, _BROKER, lambda _: None)
    return Judged(folder.name, made, slow_broker(read.brokers[_BROKER]))


def print_verdicts(found: Sequence[Judged]) -> None:
    """Print all runs, and how often they are right."""
    print(_LINE.format("run", "io", "load", "", "slow", "made", "named (correlation, share, before)"))
    for each in found:
        print(_row(each))
    made = [each for each in found if each.made["antagonist"] is not None]
    calm = [each for each in found if each.made["antagonist"] is None]
    of_kind: dict[str, Counter[bool]] = {}
    for each in made:
        of_kind.setdefault(each.made["kind"], Counter())[each.is_right] += 1
    print()
    for kind, counts in sorted(of_kind.items()):
        print(f"{kind:<40} {counts[True]} of {counts.total()} first")
    others = sum(bool(each.named) and not each.is_right for each in made)
    nobody = sum(not each.named for each in made)
    print(f"\nantagonists: {sum(each.is_right for each in made)} of {len(made)} named first; "
          f"another one first in {others}, nobody in {nobody}")  # fmt: skip
    print(f"calm runs: nobody named in {sum(each.is_right for each in calm)} of {len(calm)}")


def _row(each: Judged) -> str:
    found, made = each.found, each.made
    named = ", ".join(
        f"{one.client[0]} ({one.correlation:.2f}, {one.share:.2f}, {one.usual_share:.2f})"
        for one in found.suspects
        if one.is_named
    )
    slow = f"{found.slow_windows}/{found.windows}"
    verdict = "right" if each.is_right else "WRONG"
    client = f"{made['antagonist']}: {made['kind']}"[:24] if made["antagonist"] else "-"
    return _LINE.format(
        each.name, made["io_threads"], f"{made['load']:.1f}", verdict, slow, client, named or "-"
    )
