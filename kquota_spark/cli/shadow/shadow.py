"""`kquota shadow`: who would be throttled, and who freed, by the quotas of `quotas.shadow`."""

from __future__ import annotations

from typing import Any

from kquota_spark.cli.answers import DAY_MS, attributes, bucket_values, last_day, of_one_cluster, period_of
from kquota_spark.cli.options import LAST_DAY, bucket_text, more_of, only
from kquota_spark.cli.question import Asked, Found, Question, column
from kquota_spark.cli.text.render import Colour, Report, Row, Shown
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import counted, iso_time, person_count, person_ms, rate_text
from kquota_spark.reports.impact.shadow_effect import Effect, ShadowBucket, ShadowEffect, shadow_effect
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.reading import Tables, utc_text

COMMANDS = {
    "shadow": (
        "answers",
        "the quotas of quotas.shadow: which clients they would throttle or free",
        "kquota shadow --since 1d",
        "kquota shadow --since 2h --output json",
    ),
}
_COLUMNS = (
    "cluster_id", "quota_type", "bucket_user", "bucket_client_id", "bucket_tags", "effect", "limit_before_per_s",
    "limit_after_per_s", "rule_before", "rule_after", "delay_ms", "delay_by_replay_ms", "delay_by_replay_after_ms",
    "throttled_requests_by_replay", "throttled_requests_by_replay_after", "near_seconds",
    "unknown_requests", "has_bucket", "is_lower",
)  # fmt: skip
_EFFECTS = {
    Effect.THROTTLED: "newly throttled",
    Effect.FREED: "freed",
    Effect.MORE: "more",
    Effect.LESS: "less",
    Effect.OPEN: "open",
}
_HARM = (Effect.THROTTLED, Effect.MORE)


def _find(asked: Asked) -> Found:
    """One row per bucket that the shadow quotas change, with the delay before and after.

    Raises:
        UserError: the period is empty, or no shadow was judged.
    """
    period = period_of(asked)
    settings = of_one_cluster(asked, period.from_ms)
    found = _effect(asked.tables, settings, period)
    rows = _rows(settings, found, asked.wanted.type)
    return Found(
        _COLUMNS,
        rows,
        _SHOWN,
        _footer(found, len(rows), asked.limit),
        when_empty=f"no difference: {_title(found)}",
        envelope={
            "shadow": found.name,
            "shadow_version": found.version,
            "from": iso_time(found.covered.from_ms),
            "to": iso_time(found.covered.to_ms),
        },
    )


def shadow_report(settings: Settings) -> Report:
    """The same about the last day of the tables, for a page.

    Raises:
        UserError: the tables are empty or cannot be read, or no shadow was judged.
    """
    with Tables(settings) as tables:
        tables.follow(DECISIONS.name, DAY_MS)
        found = _effect(tables, settings, last_day(tables))
    rows = _rows(settings, found, None)
    empty = f"No difference: {_title(found)}"
    return Report(
        "kquota shadow", _COLUMNS, rows, _SHOWN, footer=_footer(found, len(rows), None), when_empty=empty,
        colour=_colour,
    )  # fmt: skip


def _effect(tables: Tables, settings: Settings, period: Period) -> ShadowEffect:
    found = shadow_effect(tables, settings, period)
    if found is None:
        raise UserError(
            f"no shadow quotas were judged from {utc_text(period.from_ms)} to {utc_text(period.to_ms)}: set "
            "quotas.shadow to a file of quotas, and start the audit again"
        )
    return found


def _rows(settings: Settings, found: ShadowEffect, quota_type: str | None) -> list[Row]:
    return [_row(settings.cluster_id, one) for one in found.buckets if quota_type in (None, one.quota_type)]


def _row(cluster_id: str, one: ShadowBucket) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        **bucket_values(BucketName(one.quota_type, one.user, one.client_id, one.tags or "")),
        **attributes(one, _COLUMNS),
        "effect": one.effect.value,
        "limit_before_per_s": one.limit_per_s,
        "rule_before": one.rule,
    }


def _title(found: ShadowEffect) -> str:
    during = f"{utc_text(found.covered.from_ms)} to {utc_text(found.covered.to_ms)}"
    return f"shadow {found.name}, version {found.version}, from {during}"


def _footer(found: ShadowEffect, count: int, limit: int | None) -> str:
    parts = [f"{found.count(effect):,} {text}" for effect, text in _EFFECTS.items() if found.count(effect)]
    before_ms, after_ms = found.delay_ms
    most = "at most " if any(one.is_lower for one in found.buckets) else ""
    delays = f"total delay by replay {person_ms(before_ms)} -> {most}{person_ms(after_ms)}"
    whole = (
        f"{counted(count, 'bucket')} with a difference{more_of(count, limit)}: {', '.join(parts)}; {delays}"
    )
    lines = [whole, _title(found)]
    if most:
        lines.append(
            "<=: at most. Requests pile up at their recorded times, and a client that waits sends later"
        )
    return "\n".join(lines)


def _after_text(row: dict[str, Any]) -> str:
    if not row["has_bucket"]:
        return "other bucket"
    return rate_text(row["quota_type"], row["limit_after_per_s"])


def _after_ms_text(row: dict[str, Any]) -> str:
    if not row["delay_by_replay_after_ms"]:
        return "-"
    return f"{'<= ' if row['is_lower'] else ''}{person_ms(row['delay_by_replay_after_ms'])}"


def _unknown_text(row: dict[str, Any]) -> str:
    found = [f"{row['near_seconds']:,} s near"] if row["near_seconds"] else []
    found += [f"?{row['unknown_requests']:,}"] if row["unknown_requests"] else []
    return ", ".join(found) or "-"


_SHOWN = (
    Shown("bucket", bucket_text, is_text=True, keep=20),
    column("quota_type"),
    Shown("effect", lambda row: _EFFECTS[Effect(row["effect"])], is_text=True, keep=15),
    column("limit_before_per_s", "limit", rank=2),
    Shown("shadow limit", lambda row: _after_text(dict(row)), rank=1),
    column("delay_by_replay_ms", "delay before", hides_zero=True),
    Shown("delay after", lambda row: _after_ms_text(dict(row))),
    Shown(
        "throttled requests",
        lambda row: (
            f"{person_count(row['throttled_requests_by_replay'])} -> "
            f"{person_count(row['throttled_requests_by_replay_after'])}"
        ),
        rank=3,
    ),
    Shown(
        "left open",
        lambda row: _unknown_text(dict(row)),
        rank=4,
        note="left open: seconds in which a clock error of 2 ms decides, and requests (?) without a known amount",
    ),
)


def _colour(row: Row) -> Colour | None:
    return Colour.RED if Effect(row["effect"]) in _HARM else None


QUESTION = Question(
    command="shadow",
    table=DECISIONS,
    find=_find,
    options=only(type=""),
    period=LAST_DAY,
    colour=_colour,
    has_agreement=False,
)
add_commands = QUESTION.add_to
