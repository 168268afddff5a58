"""Gathers the report from the tables: every section from its module, over one opened set of tables, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kquota_spark import __version__
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.reports.agreement.confidence import confidence, covered_note, is_little_covered
from kquota_spark.reports.right_sizes.period_sizes import period_sizes
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.report_scope import Scope, is_without_quotas, open_scope
from kquota_spark.reports.scope.shared_rows import Head, ThrottledBucket
from kquota_spark.reports.sections import SECTIONS, AuditReport
from kquota_spark.reports.sections.throttled import throttled_buckets
from kquota_spark.reports.sections.why import worst_reasons
from kquota_spark.reports.why.of_scope import MOST_BUCKETS, left_out_text
from kquota_spark.store.reading import Tables, utc_text

_USERS = """
select distinct "user" from usage
where cluster_id = ? and usage.second >= make_timestamptz(?) and usage.second < make_timestamptz(?) and "user" <> ''
order by 1
"""
_IS_USER_SEEN = """
select 1 from usage
where cluster_id = ? and usage.second >= make_timestamptz(?) and usage.second < make_timestamptz(?) and "user" = ?
limit 1
"""
_COVERED_PERCENT = 99.0
_IS_SEEN = "select exists(select 1 from places) or exists(select 1 from used)"
_HAS_REQUEST_TIME = "select exists(select 1 from used where quota_type = 'request')"


def gather_report(
    settings: Settings,
    period: Period,
    *,
    made_at_ms: int,
    tenant: str | None = None,
    top: int = 20,
    heat_rows: int = 40,
    most_s: float | None = None,
) -> AuditReport:
    """The report over a period.

    Args:
        settings: where the tables are, and the cluster.
        period: what to report on.
        made_at_ms: epoch ms.
        tenant: a user; the report is of this user's buckets and clients, and names no other. None for the cluster.
        top: maximum rows of a list.
        heat_rows: maximum buckets of a heat map.
        most_s: time limit, s; None for none.

    Raises:
        UserError: the period has no data, the user was not seen in it, or the tables cannot be read.
        SlowError: it takes longer than the limit.
    """
    with Tables(settings, most_s) as tables:
        scope = open_scope(tables, settings, period, tenant=tenant, top=top, heat_rows=heat_rows)
        if tenant is not None and not tables.query(_IS_SEEN).rows[0][0]:
            msg = f"user {tenant} was not seen from {utc_text(period.from_ms)} to {utc_text(period.to_ms)}"
            raise UserError(f"{msg}: check the name, which stands without its type (alice, not User:alice)")
        return _gathered(scope, made_at_ms)


def tenants_seen(settings: Settings, period: Period, *, most_s: float | None = None) -> list[str]:
    """Users that sent anything in the period, in order: each has a page of its own. `most_s` is a time limit, s.

    Raises:
        UserError: the table is missing or cannot be read.
        SlowError: it takes longer than the limit.
    """
    return [user for (user,) in _in_usage(settings, period, most_s, _USERS)]


def is_tenant_seen(settings: Settings, user: str, period: Period, *, most_s: float | None = None) -> bool:
    """Whether a user sent anything in the period.

    Args:
        settings: where the tables are, and the cluster.
        user: the Kafka user.
        period: the period.
        most_s: time limit, s; None for none.

    Raises:
        UserError: the table is missing or cannot be read.
        SlowError: it takes longer than the limit.
    """
    return bool(_in_usage(settings, period, most_s, _IS_USER_SEEN, user))


def _in_usage(
    settings: Settings, period: Period, most_s: float | None, sql: str, *values: str
) -> Sequence[tuple[Any, ...]]:
    """Rows of a query on `usage`; its first parameters are the cluster and the period."""
    with Tables(settings, most_s) as tables:
        tables.open("usage", period.from_ms)
        during = (period.from_ms * 1_000, period.to_ms * 1_000)
        return tables.query(sql, [settings.cluster_id, *during, *values]).rows


def _gathered(scope: Scope, made_at_ms: int) -> AuditReport:
    head = Head(
        cluster_id=scope.cluster_id,
        from_ms=scope.asked.from_ms,
        to_ms=scope.asked.to_ms,
        made_at_ms=made_at_ms,
        version=__version__,
        tenant=scope.tenant,
        is_first_look=scope.once(is_without_quotas),
        covered_percent=scope.covered_percent,
        is_covered=scope.covered_percent >= _COVERED_PERCENT,
    )
    found = confidence(scope, scope.settings, made_at_ms)
    of_sections: dict[str, Any] = {}
    for section in SECTIONS:
        of_sections.update(section.gather(scope))
    return AuditReport(head, found, notes=tuple(_notes(scope, head)), **of_sections)


def _notes(scope: Scope, head: Head) -> Iterator[str]:
    # If little is covered, this note is already among the reasons for doubt.
    if (note := covered_note(scope)) and not is_little_covered(scope, head.made_at_ms):
        yield note
    if head.is_first_look:
        yield "no quota is set: nobody is limited, and what follows is what everybody used"
    if left_out := left_out_text(scope.once(worst_reasons).left_out, "bucket", MOST_BUCKETS):
        yield left_out
    if scope.tenant is not None:
        yield from _to_tenant(scope.once(throttled_buckets).shown)
        if scope.once(period_sizes).sized.is_slow:
            yield (
                "values to ask for are by the share of throttled seconds: right sizes are left out, because reading "
                "four weeks takes too long for this page"
            )
    elif scope.tables.query(_HAS_REQUEST_TIME).rows[0][0]:
        yield (
            "request time is measured only of clients that some request_percentage covers: "
            "what brokers spent on all of them is more"
        )


def _to_tenant(throttled: Sequence[ThrottledBucket]) -> Iterator[str]:
    if not throttled:
        yield "you were not throttled"
    for one in throttled:
        share = f"{one.time_throttled_percent:.1f} % of this time"
        of_whom = f"client id {one.bucket.client_id}" if one.bucket.client_id else "all your clients"
        yield f"you were throttled {share} ({one.bucket.quota_type}, {of_whom})"
        if one.shared_with:
            yield (
                f"the {one.bucket.quota_type} bucket of {of_whom} is shared with "
                f"{one.shared_with:,} {'other' if one.shared_with == 1 else 'others'}: "
                "only your own numbers are shown"
            )
