"""`kquota throttled`: the throttled buckets, most total delay first."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

from kquota_spark.cli.options import TIME_FORMS, PeriodOptions, bucket_text, counted_text
from kquota_spark.cli.question import Asked, Flag, Found, Question, column
from kquota_spark.cli.read import decisions, violations
from kquota_spark.cli.text.render import Colour, Shown
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import or_dash, person_ms
from kquota_spark.model.owners import Owners
from kquota_spark.model.quotas.quota_types import TYPES
from kquota_spark.reports.advice.throttle_causes import Cause, causes, uses_of
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.report_scope import Scope, open_scope
from kquota_spark.reports.scope.shared_rows import BucketName, ThrottledBucket
from kquota_spark.reports.sections.changes import changes_without_effect
from kquota_spark.reports.sections.throttled import throttled_buckets
from kquota_spark.reports.why.of_scope import BY_CAUSE, reasons_of
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

_DAY_MS = 86_400_000
_ALL = 1_000_000
"""Maximum number of buckets, in effect all: the largest share of time is not always the most delay."""
_COLUMNS = (
    "cluster_id", "quota_type", "bucket_user", "bucket_client_id", "bucket_tags", "limit_per_s", "delay_ms",
    "throttled_requests", "time_throttled_s", "time_throttled_percent", "episodes", "peak_quota_used_percent",
    "worst_broker_id", "clients", "why",
)  # fmt: skip


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--type", choices=TYPES, help="only this quota type")
    parser.add_argument(
        "--owner",
        metavar="NAME",
        help="only buckets with clients of this owner of the file `owners`; or unowned",
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
    owners_of = _owners(asked, scope, of_type)
    if asked.own is not None:
        of_type = [one for one in of_type if asked.own in owners_of[one.bucket]]
    ordered = sorted(of_type, key=lambda one: (-one.delay_ms, one.bucket))
    # Only the shown buckets need a cause, which takes another pass over their decisions.
    shown = ordered[: asked.limit]
    with_day = _is_of_days(scope.covered)
    edits = changes_without_effect(scope)
    why = causes(uses_of(scope, shown), shown, edits, reasons_of(scope, shown, BY_CAUSE).found, with_day=with_day)
    rows = [
        _row(scope.cluster_id, one, why.get(one.bucket)) | _owner_column(owners_of, one.bucket)
        for one in ordered
    ]
    during = f"{utc_text(scope.covered.from_ms)} to {utc_text(scope.covered.to_ms)}"
    return Found(
        (*_COLUMNS, "owner") if owners_of else _COLUMNS,
        rows,
        (*_SHOWN, _OWNER) if owners_of else _SHOWN,
        _footer(rows, asked.limit, during),
        when_empty=f"nobody {'' if asked.own is None else f'of {asked.own} '}was throttled: {during}",
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
    if owners is None:
        if asked.own is not None:
            raise UserError("--owner: the settings name no file of owners: set owners in the settings file")
        return {}
    if asked.own is not None:
        require_owner(asked.own, owners, asked.settings.owners)
    return owners_of_buckets(scope, owners, [one.bucket for one in found])


def require_owner(name: str, owners: Owners, file: str) -> None:
    """Check the value of --owner.

    Raises:
        UserError: no entry of the file has this name.
    """
    if name in owners.names:
        return
    near = get_close_matches(name, owners.names, n=1)
    hint = f", did you mean {near[0]!r}?" if near else f", expected one of {', '.join(owners.names[:20])}"
    raise UserError(f"--owner: {name!r} is no owner in {file}{hint}")


def _owner_column(owners_of: Mapping[BucketName, tuple[str, ...]], bucket: BucketName) -> dict[str, str]:
    """The column `owner`; several owners share a bucket if their clients do."""
    return {"owner": ", ".join(owners_of[bucket])} if owners_of else {}


def period_of(asked: Asked) -> Period:
    """The period of --since and --until; by default the last day of `decisions`, which is open.

    Raises:
        UserError: the table is empty, or the period is.
    """
    newest_ms = asked.tables.newest_ms(DECISIONS.name)
    if newest_ms is None:
        raise UserError("the table decisions is empty: has the audit processed anything yet?")
    to_ms = newest_ms // 1_000 * 1_000 + 1_000 if asked.wanted.until is None else asked.wanted.until.time_ms
    from_ms = to_ms - _DAY_MS if asked.wanted.since is None else asked.wanted.since.time_ms
    if from_ms >= to_ms:
        raise UserError(
            f"--since {utc_text(from_ms)}: nothing is that new, the tables reach {utc_text(to_ms)}"
        )
    return Period(from_ms, to_ms)


def of_one_cluster(asked: Asked, newer_than_ms: int) -> Settings:
    """The settings; if the tables contain only one cluster, with the id of that cluster.

    Args:
        asked: the question; it opens `decisions`.
        newer_than_ms: older rows do not count, epoch ms.
    """
    asked.tables.open(DECISIONS.name, newer_than_ms)
    held = [name for (name,) in asked.tables.query("select distinct cluster_id from decisions limit 2").rows]
    return asked.settings.changed(cluster_id=held[0]) if len(held) == 1 else asked.settings


def _is_of_days(period: Period) -> bool:
    """Whether the period touches several UTC days, so that a time of day alone is ambiguous."""
    return period.from_ms // _DAY_MS != (period.to_ms - 1) // _DAY_MS


def _row(cluster_id: str, one: ThrottledBucket, why: Cause | None) -> dict[str, Any]:
    figures = asdict(one)
    bucket = figures.pop("bucket")
    return {
        "cluster_id": cluster_id,
        "quota_type": bucket["quota_type"],
        "bucket_user": bucket["user"],
        "bucket_client_id": bucket["client_id"],
        "bucket_tags": bucket["tags"] or None,
        "why": None if why is None else why.short,
        **{name: figures[name] for name in _COLUMNS if name in figures},
    }


def _footer(rows: list[dict[str, Any]], limit: int | None, during: str) -> str:
    whole = person_ms(sum(row["delay_ms"] for row in rows))
    return f"{counted_text(len(rows), 'bucket', limit)}; total delay {whole} from {during}"


_SHOWN = (
    Shown("bucket", bucket_text, is_text=True, keep=24),
    column("quota_type"),
    column("limit_per_s", rank=3),
    Shown(
        "total delay", lambda row: or_dash(row["delay_ms"] or None, person_ms), note="total delay: by brokers"
    ),
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
    options=_options,
    own=lambda options: getattr(options, "owner", None),
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
    period=PeriodOptions(
        f"from then on: {TIME_FORMS} (default the last day of the tables)",
        "until then (default the newest second of the tables)",
    ),
    colour=lambda row: Colour.RED if row["time_throttled_percent"] > 50 else None,
)
add_commands = QUESTION.add_to
