"""The demo's view of the audit: a live table of clients near or above a limit, and at the end a summary.

The summary is printed, and stored as `summary.json`. With SOURCE=jmx there is no request log to compare with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import person_ms, rate_text, type_text
from kquota_spark.model.replay.agreement import error_summary
from kquota_spark.schema.harm import DELAY_MS, IS_VIOLATED
from kquota_spark.schema.tables import LEFT_OUT
from kquota_spark.store.reading import Tables, open_tables

_OPEN_COUNTS = f"""
    SELECT
      (SELECT coalesce(sum(coalesce(lines, 1)), 0)::BIGINT FROM requests
       WHERE quota_type IS NOT NULL AND NOT is_out_of_time) AS counted,
      (SELECT coalesce(sum(requests + duplicates), 0)::BIGINT FROM usage
       WHERE quota_type IN ('produce', 'fetch')) AS measured,
      (SELECT coalesce(sum(requests), 0)::BIGINT FROM usage) AS to_judge,
      (SELECT coalesce(sum(requests + late), 0)::BIGINT FROM decisions) AS judged,
      (SELECT count(*) FROM decisions WHERE {IS_VIOLATED}) AS violated,
      (SELECT coalesce(sum(violated_seconds), 0)::BIGINT FROM violations) AS in_episodes
"""  # noqa: S608 - a condition of ours
_OPEN_SAMPLES = """
    SELECT
      (SELECT count(*) FROM jmx_samples WHERE byte_rate IS NOT NULL) AS rates,
      (SELECT count(*) FROM decisions WHERE quota_type IN ('produce', 'fetch')) AS judged,
      (SELECT count(*) FROM decisions WHERE quota_used_percent > 100) AS violated,
      (SELECT coalesce(sum(violated_seconds), 0)::BIGINT FROM violations) AS in_episodes
"""
_AGREEMENT = """
    SELECT quota_type, sum(requests_judged)::BIGINT AS requests_judged,
      sum(requests_agreeing)::BIGINT AS agreeing, sum(judged_throttled)::BIGINT AS throttled_by_broker,
      sum(judged_throttled - false_negative + false_positive)::BIGINT AS throttled_by_model,
      sum(false_positive)::BIGINT AS false_positive, sum(false_negative)::BIGINT AS false_negative,
      sum(judged_near_limit)::BIGINT AS near_limit, sum(uncertain)::BIGINT AS uncertain,
      sum(uncertain_wrong)::BIGINT AS uncertain_wrong, sum(inferred)::BIGINT AS inferred,
      sum(excluded)::BIGINT AS excluded, sum(late)::BIGINT AS late,
      flatten(list(throttle_errors_ms)) AS errors
    FROM decisions GROUP BY quota_type ORDER BY quota_type DESC
"""
_VERDICTS = """
      (SELECT count(*) FROM decisions) AS decisions,
      (SELECT count(*) FROM violations) AS violations,
      (SELECT count(*) FROM violations WHERE end_time IS NULL) AS open_violations,
      (SELECT coalesce(list(DISTINCT level ORDER BY level), []) FROM decisions WHERE level IS NOT NULL) AS levels_seen
"""
_LOG_TOTALS = f"""
    WITH kinds AS (SELECT kind, sum(coalesce(lines, 1))::BIGINT AS count FROM requests GROUP BY kind)
    SELECT coalesce(sum(count) FILTER (kind IN ('request', '{LEFT_OUT}')), 0)::BIGINT AS requests,
      coalesce(sum(count) FILTER (kind = 'unreadable'), 0)::BIGINT AS unreadable,
      coalesce(sum(count) FILTER (kind = 'heartbeat'), 0)::BIGINT AS heartbeats, {_VERDICTS} FROM kinds
"""  # noqa: S608 - names of ours
_JMX_TOTALS = f"""
    SELECT count(*) FILTER (kind = 'sample') AS samples, count(*) FILTER (kind = 'unreadable') AS unreadable,
      {_VERDICTS} FROM jmx_samples
"""  # noqa: S608 - names of ours
_JMX_BUCKETS = """
    SELECT quota_type, bucket_user, bucket_client_id, rule, count(*) AS samples,
      count(*) FILTER (quota_used_percent > 100) AS violated, max(rate_per_s) AS peak_rate_per_s,
      max(quota_used_percent) AS peak_percent, max(observed_throttle_ms) AS throttle_ms
    FROM decisions WHERE limit_per_s IS NOT NULL GROUP BY ALL ORDER BY peak_percent DESC, 1, 2, 3, 4
"""
_LIVE = f"""
    SELECT broker_id, quota_type, bucket_user, bucket_client_id, max_by(limit_per_s, second) AS limit_per_s,
      max_by(rate_per_s, second) AS rate_per_s, max_by(quota_used_percent, second) AS quota_used_percent,
      coalesce(sum({DELAY_MS}), max(observed_throttle_ms), 0)::BIGINT AS throttled_ms
    FROM decisions WHERE limit_per_s IS NOT NULL
      AND epoch_ms(second) > (SELECT max(epoch_ms(second)) FROM decisions) - 10000
    GROUP BY ALL ORDER BY quota_used_percent DESC NULLS LAST
"""  # noqa: S608 - names of ours
_SHOWN = (
    ("requests judged", "requests_judged"),
    ("throttled by the broker", "throttled_by_broker"),
    ("throttled by the replay", "throttled_by_model"),
    ("false: only the replay did", "false_positive"),
    ("false: only the broker did", "false_negative"),
    ("judged within 5 % of the limit", "near_limit"),
    ("uncertain, counted apart", "uncertain"),
    ("inferred", "inferred"),
)
_LIVE_TITLES = f"{'who':32}{'type':9}{'limit':>11}{'rate':>11}{'% of quota':>11}{'delay':>10}"
_LIVE_ROWS, _BUCKET_ROWS = 14, 12
_LIVE_EVERY_S = 3.0
_PLAIN_EVERY_S = 15.0


class LiveTable:
    """A table of the buckets in use: redrawn in place on a terminal, elsewhere printed every 15 s.

    Elsewhere the first rows are printed as soon as they exist.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_terminal = sys.stdout.isatty()
        self._checked_s = -_PLAIN_EVERY_S
        self._has_rows = False
        self._height = 0
        self._notes: list[str] = []

    def note(self, text: str) -> None:
        """Print an event of the run once, above the next table."""
        self._notes.append(text)

    def show(self, passed_s: float, of_s: float) -> None:
        """Show the table if it is due, `passed_s` seconds into a load of `of_s` seconds."""
        due_s = _PLAIN_EVERY_S if self._has_rows and not self._is_terminal else _LIVE_EVERY_S
        if passed_s - self._checked_s < due_s and not self._notes:
            return
        was_empty = self._checked_s >= 0 and not self._has_rows
        self._checked_s = passed_s
        rows = self._rows()[:_LIVE_ROWS]
        self._has_rows = bool(rows)
        if was_empty and not rows and not self._notes and not self._is_terminal:
            return
        if self._is_terminal and self._height:
            sys.stdout.write(f"\x1b[{self._height}F\x1b[J")
        for note in self._notes:
            print(f"  * {note}")
        self._notes.clear()
        lines = [f"{passed_s:5.0f} of {of_s:.0f} s   {_LIVE_TITLES}", *map(_live_line, rows)]
        if len(lines) == 1:
            lines.append("              (the audit is starting)")
        print("\n".join(lines), flush=True)
        self._height = len(lines)

    def _rows(self) -> list[dict[str, Any]]:
        try:
            with open_tables(self._settings, "decisions") as tables:
                return tables.query(_LIVE).dicts()
        except UserError:
            return []  # the job has not created its tables yet


def _who(row: dict[str, Any]) -> str:
    """The name of a bucket in the demo's tables."""
    names = " / ".join(name for name in (row["bucket_user"], row["bucket_client_id"]) if name)
    return names if row["bucket_user"] else f"client {names}"


def _live_line(row: dict[str, Any]) -> str:
    mark = "!" if row["quota_used_percent"] > 100 else " "
    rates = [rate_text(row["quota_type"], row[name]) for name in ("limit_per_s", "rate_per_s")]
    return (
        f"            {mark}   {_who(row):32.32}{type_text(row['quota_type']):9}{rates[0]:>11}{rates[1]:>11}"
        f"{row['quota_used_percent']:>11.1f}{person_ms(row['throttled_ms']):>10}"
    )


def is_all_judged(settings: Settings) -> bool:
    """Whether every counted line, or every sampled rate, has passed all stages of the audit."""
    if not settings.kafka.has_log:
        with open_tables(settings, "jmx_samples", "decisions", "violations") as tables:
            found = tables.query(_OPEN_SAMPLES).dicts()[0]
        return bool(found["rates"] == found["judged"] > 0 and found["violated"] == found["in_episodes"])
    with open_tables(settings, "requests", "usage", "decisions", "violations") as tables:
        found = tables.query(_OPEN_COUNTS).dicts()[0]
    return bool(
        found["counted"] == found["measured"] > 0
        and found["to_judge"] == found["judged"]
        and found["violated"] == found["in_episodes"]
    )


def summarise(settings: Settings, demo_seconds: float, path: Path) -> str:
    """Write `summary.json` and return a readable summary; quota types without judged requests are left out.

    Args:
        settings: where the tables are.
        demo_seconds: length of the load, seconds.
        path: where to write `summary.json`.
    """
    if settings.kafka.has_log:
        with open_tables(settings, "requests", "decisions", "violations") as tables:
            found = {**tables.query(_LOG_TOTALS).dicts()[0], "agreement": _agreement(tables)}
        kept = {"demo_seconds": demo_seconds, **found, "tables": str(Path(settings.tables).absolute())}
        lines = _log_lines(found)
    else:
        with open_tables(settings, "jmx_samples", "decisions", "violations") as tables:
            found = {**tables.query(_JMX_TOTALS).dicts()[0], "buckets": tables.query(_JMX_BUCKETS).dicts()}
        kept = {"demo_seconds": demo_seconds, "source": "jmx", **found}
        lines = _jmx_lines(found)
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return "\n".join(lines)


def next_steps(config: Path, report: Path) -> str:
    """What to open and which commands to try after the demo.

    Args:
        config: the settings file of the demo.
        report: its report.
    """
    own = Path(".venv/bin/kquota")
    kquota = own if own.exists() else own.name
    commands = (
        "top --once",
        "timeline --user bob --type produce",
        "why --client-id dashboard",
        "budget",
        "doctor",
    )
    lines = [
        f"open {report} in a browser, and try",
        *(f"  {kquota} {each} --config {config}" for each in commands),
    ]
    return "\n".join(lines)


def _agreement(tables: Tables) -> dict[str, Any]:
    found = {}
    for row in tables.query(_AGREEMENT).dicts():
        errors = row.pop("errors") or []
        found[row.pop("quota_type")] = {**row, "throttle_error_ms": error_summary(errors)}
    return found


def _log_lines(summary: dict[str, Any]) -> list[str]:
    judged = {name: tally for name, tally in summary["agreement"].items() if tally["requests_judged"]}
    lines = [
        "",
        (
            f"requests {summary['requests']:,}   unreadable lines {summary['unreadable']:,}   "
            f"decisions {summary['decisions']:,}   violations {summary['violations']:,} "
            f"({summary['open_violations']} open)   levels {', '.join(map(str, summary['levels_seen']))}"
        ),
        "",
        "agreement with the broker        "
        + "".join(f"{name.removeprefix('controller_'):>12}" for name in judged),
    ]
    for title, key in _SHOWN:
        values = [tally[key] for tally in judged.values()]
        lines.append(f"  {title:31}" + "".join(f"{value:>12,}" for value in values))
    for part in ("median", "p99", "max"):
        values = [tally["throttle_error_ms"][part] for tally in judged.values()]
        shown = "".join(f"{'-' if value is None else format(value, ','):>12}" for value in values)
        lines.append(f"  {f'throttle error {part}, ms':31}{shown}")
    lines.append(
        "  (inferred: a throttled fetch comes back empty, its size is not in the log; it is not judged)"
    )
    return lines


def _jmx_lines(summary: dict[str, Any]) -> list[str]:
    titles = (
        f"{'by the brokers themselves':32}{'type':9}{'samples':>8}{'violated':>9}{'peak':>11}{'throttle':>10}"
    )
    return [
        "",
        (
            f"samples {summary['samples']:,}   unreadable messages {summary['unreadable']:,}   decisions "
            f"{summary['decisions']:,}   violations {summary['violations']:,} ({summary['open_violations']} open)   "
            f"levels {', '.join(map(str, summary['levels_seen']))}"
        ),
        "",
        titles,
        *map(_bucket_line, summary["buckets"][:_BUCKET_ROWS]),
        "  (peak: percent of the limit in force; throttle: the longest mean of a minute)",
    ]


def _bucket_line(row: dict[str, Any]) -> str:
    throttle = "-" if row["throttle_ms"] is None else f"{row['throttle_ms']:,} ms"
    return (
        f"  {_who(row):30.30}{row['quota_type']:9}{row['samples']:>8,}{row['violated']:>9,}"
        f"{row['peak_percent']:>9.1f} %{throttle:>10}"
    )
