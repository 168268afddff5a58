"""How well a replay agrees with the broker, over everything and by quota type."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import Report, Shown, show
from kquota_spark.formats.text.person_units import or_dash, person_count, person_ms, type_text
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.agreement import Agreement
from kquota_spark.replay.files import Replay

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
    columns = {"all": summary, **{type_text(name): tally for name, tally in summary["by_type"].items()}}
    counts = [name for name, value in summary["by_type"]["produce"].items() if isinstance(value, int)]
    rows = [
        {
            "name": name.replace("_by_broker", " by brokers")
            .replace("_by_model", " by replay")
            .replace("_", " ")
        }
        | {title: person_count(column[name]) for title, column in columns.items()}
        for name in counts
    ]
    rows += [
        {"name": f"throttle error {part}"}
        | {title: or_dash(column["throttle_error_ms"][part], person_ms) for title, column in columns.items()}
        for part in ("median", "p90", "p99", "max")
    ]
    of_types = (Shown(title, itemgetter(title)) for title in columns)
    shown = (Shown("", itemgetter("name"), is_text=True, keep=24), *of_types)
    show(Report("kquota replay", (), rows, shown), "table")
