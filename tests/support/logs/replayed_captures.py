"""The captures of tests/data as arguments of `kquota replay`, and its answers."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kquota_spark.cli.main import main
from tests.support.places import DATA


class Capture(NamedTuple):
    """A run of brokers, see the README of the data."""

    name: str
    lines: int
    options: tuple[str, ...] = ()

    @property
    def logs(self) -> list[Path]:
        return sorted((DATA / self.name).glob("broker-*.gz"))

    def arguments(self, *more: str) -> list[str]:
        quotas = str(DATA / self.name / "quotas.yaml")
        return ["replay", "--quotas", quotas, *self.options, *more, *map(str, self.logs)]


LEVELS = Capture("zk39-levels", 12_202 + 11_667, ("--apply-lag-ms", "95"))
PLAIN = Capture(
    "zk39-plain", 7_804, ("--apply-lag-ms", "95", "--window-num", "5", "--window-size-seconds", "2")
)
KRAFT = Capture("kraft39", 9_546)
TELEGRAF = Capture("jmx-telegraf", 634)
CAPTURES = (LEVELS, PLAIN, KRAFT, TELEGRAF)
COUNTS = (
    "requests_judged", "throttled_by_broker", "throttled_by_model", "agreeing", "false_positive",
    "false_negative", "near_limit", "uncertain", "uncertain_wrong", "inferred", "excluded",
)  # fmt: skip


_PROGRESS = re.compile(r"^[\w.-]+: [\d,]+ lines\n", re.MULTILINE)


def run(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(list(arguments))
    return code, out.getvalue(), err.getvalue()


def found(arguments: Sequence[str]) -> dict[str, Any]:
    code, out, err = run([*arguments, "--output", "json"])
    # On a busy machine it takes seconds, and says meanwhile how far it is.
    assert (code, _PROGRESS.sub("", err)) == (0, "")
    answer: dict[str, Any] = json.loads(out)
    return answer
