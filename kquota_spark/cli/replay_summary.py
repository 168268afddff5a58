"""How well a replay agrees with the broker, over everything and by quota type."""

from __future__ import annotations

from typing import Any

from kquota_spark.cli.page import Page
from kquota_spark.formats.person_units import type_text
from kquota_spark.io.offline import Replay
from kquota_spark.model.agreement import Agreement
from kquota_spark.model.quota_types import QuotaType

_MOST_REASONS = 5


def summary_of(found: Replay) -> dict[str, Any]:
    """Counts of lines and verdicts, as JSON has them."""
    whole = Agreement()
    by_type = {quota_type: Agreement() for quota_type in QuotaType}
    for key, verdicts in found.verdicts.items():
        whole.add_all(verdicts)
        by_type[key.quota_type].add_all(verdicts)
    return {
        "lines": found.lines,
        "unreadable": sum(found.unreadable.values()),
        "unreadable_reasons": dict(found.unreadable),
        "counted": found.counted,
        "duplicates": found.duplicates,
        "verdicts": sum(map(len, found.verdicts.values())),
        "decisions": sum(map(len, found.decisions.values())),
        **whole.as_dict(),
        "by_type": {quota_type.value: tally.as_dict() for quota_type, tally in by_type.items()},
    }


def print_summary(summary: dict[str, Any]) -> None:
    """The same for people."""
    print(f"{summary['lines']:,} lines, {summary['unreadable']:,} unreadable, {summary['counted']:,} counted")
    reasons = sorted(summary["unreadable_reasons"].items(), key=lambda item: (-item[1], item[0]))
    for reason, lines in reasons[:_MOST_REASONS]:
        Page().paragraph("unreadable:", f"{lines:,} x {reason}", indent=12)
    columns = [summary, *summary["by_type"].values()]
    print(" " * 22 + "".join(f"{name:>12}" for name in ["all", *map(type_text, summary["by_type"])]))
    for name, value in summary["by_type"]["produce"].items():
        if isinstance(value, int):
            print(f"{name:22}" + "".join(f"{column[name]:>12,}" for column in columns))
    for part in ("median", "p90", "p99", "max"):
        sizes = [column["throttle_error_ms"][part] for column in columns]
        shown = "".join(f"{'-' if size is None else format(size, ','):>12}" for size in sizes)
        print(f"{'throttle error ' + part:18} ms {shown}".rstrip())
