"""`kquota throttled`: the throttled buckets, most total delay first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kquota_spark.cli.answers import (
    DAY_MS,
    attributes,
    bucket_values,
    of_one_cluster,
    period_of,
    require_owner,
)
from kquota_spark.cli.options import LAST_DAY, bucket_text, counted_text, lines, only
from kquota_spark.cli.own_options import option
from kquota_spark.cli.question import Asked, Flag, Found, Question, column
from kquota_spark.cli.read import decisions, violations
from kquota_spark.cli.text.render import Colour, Shown
from kquota_spark.formats.text.person_units import person_ms
from kquota_spark.reports.advice.throttle_causes import Cause, causes, uses_of
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.report_scope import Scope, open_scope
from kquota_spark.reports.scope.shared_rows import BucketName, ThrottledBucket
from kquota_spark.reports.sections.changes import changes_without_effect
from kquota_spark.reports.sections.throttled import throttled_buckets
from kquota_spark.reports.why.of_scope import BY_CAUSE, MOST_BUCKETS, left_out_text, reasons_of
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.reading import utc_text

COMMANDS = {
    "throttled": (
        "answers",
        "which buckets were throttled, most total delay first, and how long they waited",
        "kquota throttled --since 2h",
        "kquota throttled --episodes --open",
    ),
}

_ALL = 1_000_000
"""Maximum number of buckets, in effect all: the largest share of time is not always the most delay."""
_COLUMNS = (
    "cluster_id", "quota_type", "bucket_user", "bucket_client_id", "bucket_tags", "limit_per_s", "delay_ms",
    "throttled_requests", "time_throttled_s", "time_throttled_percent", "episodes", "peak_quota_used_percent",
    "worst_broker_id", "clients", "why",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Own:
    """The options that no other command has."""

    owner: str | None = option(
        "--owner", "only buckets with clients of this owner of the file `owners`; or unowned", metavar="NAME"
    )


def _find(asked: Asked) -> Found:
    """One row per throttled bucket of a cluster, with the figures of the report.

    Raises:
        UserError: the period is empty, or the tables contain nothing of it.
    """
    period = period_of(asked)
    scope = open_scope(asked.tables, of_one_cluster(asked, period.from_ms), period, tenant=None, top=_ALL)
    found = throttled_buckets(scope).shown
    of_type = [one for one in found if asked.wanted.type in (None, one.bucket.quota_type)]
    owner = asked.own.owner
    owners_of = _owners(asked, scope, of_type)
    if owner is not None:
        of_type = [one for one in of_type if owner in owners_of[one.bucket]]
    ordered = sorted(of_type, key=lambda one: (-one.delay_ms, one.bucket))
    # Only the shown buckets need a cause, which takes another pass over their decisions.
    shown = ordered[: asked.limit]
    with_day = _is_of_days(scope.covered)
    edits, by_replay = changes_without_effect(scope), reasons_of(scope, shown, BY_CAUSE)
    why = causes(uses_of(scope, shown), shown, edits, by_replay.found, with_day=with_day)
    rows = [
        _row(scope.cluster_id, one, why.get(one.bucket)) | _owner_column(owners_of, one.bucket)
        for one in ordered
    ]
    during = f"{utc_text(scope.covered.from_ms)} to {utc_text(scope.covered.to_ms)}"
    left_out = left_out_text(by_replay.left_out, "bucket", MOST_BUCKETS)
    return Found(
        (*_COLUMNS, "owner") if owners_of else _COLUMNS,
        rows,
        (*_SHOWN, _OWNER) if owners_of else _SHOWN,
        lines(_footer(rows, asked.limit, during), left_out),
        when_empty=f"nobody {'' if owner is None else f'of {owner} '}was throttled: {during}",
    )


def _owners(
    asked: Asked, scope: Scope, found: Sequence[ThrottledBucket]
) -> Mapping[BucketName, tuple[str, ...]]:
    """The owners by bucket; empty if the settings name no file of owners.

    Raises:
        UserError: the file has problems, or --owner names no owner of it.
    """
    from kquota_spark.config.owners_file import owners_of
    from kquota_spark.reports.clients.bucket_owners import owners_of_buckets

    owners = owners_of(asked.settings)
    require_owner(asked.own.owner, owners, asked.settings.owners)
    if owners is None:
        return {}
    return owners_of_buckets(scope, owners, [one.bucket for one in found])


def _owner_column(owners_of: Mapping[BucketName, tuple[str, ...]], bucket: BucketName) -> dict[str, str]:
    """The column `owner`; several owners share a bucket if their clients do."""
    return {"owner": ", ".join(owners_of[bucket])} if owners_of else {}


def _is_of_days(period: Period) -> bool:
    """Whether the period touches several UTC days, so that a time of day alone is ambiguous."""
    return period.from_ms // DAY_MS != (period.to_ms - 1) // DAY_MS


def _row(cluster_id: str, one: ThrottledBucket, why: Cause | None) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        **bucket_values(one.bucket),
        **attributes(one, _COLUMNS),
        "why": None if why is None else why.short,
    }


def _footer(rows: list[dict[str, Any]], limit: int | None, during: str) -> str:
    whole = person_ms(sum(row["delay_ms"] for row in rows))
    return f"{counted_text(len(rows), 'bucket', limit)}; total delay {whole} from {during}"


_SHOWN = (
    Shown("bucket", bucket_text, is_text=True, keep=24),
    column("quota_type"),
    column("limit_per_s", rank=3),
    column("delay_ms", about="by brokers", hides_zero=True),
    column("throttled_requests", rank=4),
    column("time_throttled_percent", rank=2),
    column("peak_quota_used_percent", "peak", rank=6),
    column("worst_broker_id", rank=7),
    Shown("clients", lambda row: ", ".join(row["clients"]), is_text=True, keep=12, rank=5),
    Shown("why", lambda row: row["why"] or "-", is_text=True, keep=32),
)
_OWNER = Shown("owner", lambda row: row["owner"], is_text=True, keep=12, rank=1)
QUESTION = Question(
    command="throttled",
    table=DECISIONS,
    find=_find,
    options=only(type=""),
    declared=_Own,
    modes=(
        (
            Flag("--episodes", "instead every episode above a limit, newest first: kquota violations"),
            violations.QUESTION,
        ),
        (
            Flag("--seconds", "instead every second of every bucket, newest first: kquota decisions"),
            decisions.QUESTION,
        ),
    ),
    period=LAST_DAY,
    colour=lambda row: Colour.RED if row["time_throttled_percent"] > 50 else None,
)
add_commands = QUESTION.add_to
