"""Which clients were throttled, and for how long: of each bucket as a share of the clock time, and of single requests.

A second counts if a throttle began in it or still ran, by the longest throttle that began in each second: a client that
is throttled for five seconds sends nothing in four of them. A second counts once for all brokers. A JMX sample contains
a mean of the last half to whole minute, so there the share is that of the samples with a throttle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.formats.text.person_units import broker_text, counted, person_ms
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, table_of
from kquota_spark.reports.parts.report_section import (
    BUCKET_COLUMNS,
    CsvFile,
    ReportSection,
    names_of,
    values_of,
)
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of
from kquota_spark.reports.scope.shared_rows import (
    MOST_CLIENTS,
    OBJECTIVE_PERCENT,
    BucketName,
    ThrottledBucket,
)
from kquota_spark.reports.sections.rates import side_by_side
from kquota_spark.schema.harm import EPISODE_END, time_throttled

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_THROTTLED = f"""
with {time_throttled(BUCKET, "judged")}, of_buckets as (
  select {BUCKET}, min(least_limit_per_s) as limit_per_s, sum(delay_ms)::bigint as delay_ms,
         sum(throttled_requests)::bigint as throttled_requests, bool_or(is_log) as is_log,
         100.0 * sum(throttled_rows) / nullif(sum(seconds), 0) as of_samples_percent,
         arg_max(broker_id, (delay_ms, throttled_rows, -broker_id)) as worst_broker_id,
         max(certain_used_percent) as peak_quota_used_percent
  from places group by all
)
select *, if(is_log, 100.0 * time_throttled_s / ?, of_samples_percent) as time_throttled_percent,
       count(*) over () as found, sum(delay_ms) over ()::bigint as found_ms
from of_time join of_buckets using ({BUCKET})
order by delay_ms desc, time_throttled_percent desc, {BUCKET} limit ?
"""  # noqa: S608 - names of ours
_FIGURES = (
    "limit_per_s", "delay_ms", "throttled_requests", "time_throttled_s", "time_throttled_percent",
    "worst_broker_id", "peak_quota_used_percent",
)  # fmt: skip
_EPISODES = f"""
select {BUCKET.replace("bucket_tags", "coalesce(bucket_tags, '') as bucket_tags")}, count(*) as episodes
from violations where cluster_id = ? and start_time < make_timestamptz(?)
  and {EPISODE_END} >= make_timestamptz(?) group by all
"""  # noqa: S608 - names of ours
_NAMES = f"""
select {BUCKET}, list_sort(list_distinct(flatten(list(users)))) as users,
       list_sort(list_distinct(flatten(list(client_ids)))) as client_ids
from (select distinct {BUCKET}, users, client_ids from judged where is_throttled and ({BUCKET}) in (
  select (quota_type, "user", client_id, tags) from (select unnest(?, recursive := true))
)) group by all
"""  # noqa: S608 - names of ours
# `usage` has only the sum of a second. Where `requests` lacks its lines, the mean is the least that the longest can be.
_SHARED = f"""
with lines as (
  select broker_id, quota_type, client_id, record_time_ms // 1000 * 1000 as second_ms,
         max(observed_throttle_ms) as longest_ms
  from requests
  where cluster_id = ? and kind = 'request' and "user" = ? and observed_throttle_ms > 0
    and record_time_ms >= ? and record_time_ms < ?
  group by all
), own as (
  select mine.*, used.broker_id, used.second_ms, is_log, observed_throttle_ms, true as is_throttled,
         coalesce(longest_ms, observed_throttle_ms / greatest(requests, 1)) as longest_ms
  from mine join used on used.quota_type = mine.quota_type and used.client_id = mine.bucket_client_id
  left join lines on (lines.broker_id, lines.quota_type, lines.client_id, lines.second_ms)
    = (used.broker_id, used.quota_type, used.client_id, used.second_ms)
  where shared_with > 0 and observed_throttle_ms > 0
), {time_throttled(BUCKET, "own")}, sums as (
  select {BUCKET}, any_value(shared_with) as shared_with, sum(observed_throttle_ms)::bigint as delay_ms,
         arg_max(broker_id, (observed_throttle_ms, -broker_id)) as worst_broker_id
  from own group by all
)
select * from sums join of_time using ({BUCKET}) order by time_throttled_s desc, bucket_client_id
"""  # noqa: S608 - names of ours
_SPREADS = """
select "user", count(*) as requests, sum(observed_throttle_ms)::bigint as delay_ms,
       quantile_disc(observed_throttle_ms, list_transform(range(101), lambda step: step / 100.0)) as percentiles_ms
from requests
where cluster_id = $1 and kind = 'request' and observed_throttle_ms > 0 and "user" is not null
  and record_time_ms >= $2 and record_time_ms < $3 and coalesce("user" = $4, true)
group by "user" order by delay_ms desc, "user" limit $5
"""
_MOST_USERS = 8
_MOST_BARS = 20
_COLUMNS = (
    *words.BUCKET_COLUMNS,
    *Column.numbers("time throttled", "throttled requests", "total delay", "episodes"),
    *Column.numbers("peak of quota", "limit on a broker", "worst broker"),
    Column("clients inside"),
)
_OF_FILE = (
    "limit_per_s", "delay_ms", "throttled_requests", "time_throttled_s", "time_throttled_percent",
    "worst_broker_id", "episodes", "peak_quota_used_percent",
)  # fmt: skip
_PERCENTS = (50, 95, 100)


@dataclass(frozen=True, slots=True)
class ThrottleSpread:
    """The throttle times of one user's requests, by brokers."""

    user: str
    requests: int
    delay_ms: int
    percentiles_ms: tuple[int, ...]
    """The percentiles 0 to 100 of the throttle times."""


class Throttled(NamedTuple):
    """The first throttled buckets, how many more there are, and the total delay of those (ms)."""

    shown: list[ThrottledBucket]
    left_out: int
    left_out_ms: int


def gather(scope: Scope) -> dict[str, Any]:
    """The first throttled buckets, how many more there are, and the throttle times of single requests."""
    shown, left_out, left_out_ms = scope.once(throttled_buckets)
    return {
        "throttled": shown,
        "throttled_left_out": left_out,
        "delay_left_out_ms": left_out_ms,
        "throttle_spreads": _spreads_of(scope),
    }


def throttled_buckets(scope: Scope) -> Throttled:
    """The buckets with the most total delay; those of JMX, which has no sums, by the share of time throttled.

    On a tenant's page, a bucket that is shared with others has only the tenant's own throttles, as the brokers logged
    them.
    """
    rows = scope.rows(_THROTTLED, scope.covered.to_ms, scope.covered_seconds, scope.top)
    count, total_ms = (rows[0]["found"], rows[0]["found_ms"]) if rows else (0, 0)
    during = scope.covered.to_ms * 1_000, scope.covered.from_ms * 1_000
    episodes = {bucket_of(row): row["episodes"] for row in scope.rows(_EPISODES, scope.cluster_id, *during)}
    inside = _clients(scope, map(bucket_of, rows))
    found = [
        ThrottledBucket(
            bucket=bucket,
            episodes=episodes.get(bucket, 0),
            clients=inside.get(bucket, ()),
            **{name: row[name] for name in _FIGURES},
        )
        for row in rows
        for bucket in (bucket_of(row),)
    ]
    if scope.tenant is not None:
        shared = _shared(scope)
        count, total_ms = count + len(shared), total_ms + sum(one.delay_ms for one in shared)
        found = sorted([*found, *shared], key=lambda one: (-one.delay_ms, -one.time_throttled_percent))
    shown = found[: scope.top]
    return Throttled(shown, count - len(shown), total_ms - sum(one.delay_ms for one in shown))


def _clients(scope: Scope, buckets: Iterable[BucketName]) -> dict[BucketName, tuple[str, ...]]:
    wanted = [asdict(bucket) for bucket in buckets]
    if not wanted:
        return {}
    return {bucket_of(row): _pairs(row["users"], row["client_ids"]) for row in scope.rows(_NAMES, wanted)}


def _pairs(users: list[str] | None, client_ids: list[str] | None) -> tuple[str, ...]:
    """`user / client id`; only users if there are several of both, because it is unknown which belong together."""
    names, ids = users or [""], client_ids or [""]
    if len(names) > 1 and len(ids) > 1:
        return tuple(names[:MOST_CLIENTS])
    return tuple(f"{name} / {client_id}" for name in names for client_id in ids)[:MOST_CLIENTS]


def _shared(scope: Scope) -> list[ThrottledBucket]:
    return [
        ThrottledBucket(
            bucket=bucket_of(row),
            limit_per_s=None,
            delay_ms=row["delay_ms"],
            throttled_requests=None,
            time_throttled_s=row["time_throttled_s"],
            time_throttled_percent=100.0 * row["time_throttled_s"] / scope.covered_seconds,
            worst_broker_id=row["worst_broker_id"],
            episodes=0,
            peak_quota_used_percent=None,
            clients=(f"{scope.tenant} / {row['bucket_client_id']}",),
            shared_with=row["shared_with"],
        )
        for row in scope.rows(_SHARED, scope.cluster_id, scope.tenant, *scope.asked, scope.covered.to_ms)
    ]


def _spreads_of(scope: Scope) -> tuple[ThrottleSpread, ...]:
    """Users with the most total delay first; none if `requests` keeps no row of a throttled request."""
    asked = scope.asked
    of_users = scope.rows(_SPREADS, scope.cluster_id, asked.from_ms, asked.to_ms, scope.tenant, _MOST_USERS)
    return tuple(ThrottleSpread(**row | {"percentiles_ms": tuple(row["percentiles_ms"])}) for row in of_users)


def throttled_section(report: AuditReport) -> Section:
    """Bars of total delay, the most first, and their table."""
    is_own = report.head.tenant is not None
    ordered = words.most_delayed(report.throttled)
    return Section(
        anchor="throttled",
        short="Throttled",
        title="How long were you throttled?" if is_own else "Who was throttled?",
        lead=_lead(report, ordered),
        tone=words.throttled_tone(ordered),
        reasons=tuple(map(words.sentence, report.notes)) if is_own else (),
        blocks=(_bars(report, ordered), *side_by_side(report), *_spreads(report)) if ordered else (),
    )


def _lead(report: AuditReport, ordered: list[ThrottledBucket]) -> str:
    head = report.head
    if not ordered:
        who = "You were not throttled" if head.tenant is not None else "Nobody was throttled"
        return f"{who}: no request of this period waited for a quota."
    worst = ordered[0]
    kind = words.type_word(worst.bucket.quota_type)
    share = f"{words.throttled_time(worst)} {words.of_the_period(head)} ({kind})"
    delay = f"{person_ms(worst.delay_ms)} of delay, " if worst.delay_ms else ""
    most = f"{words.bucket_of(worst.bucket, head)} most, {delay}{share}"
    count = len(ordered) + report.throttled_left_out
    if head.tenant is not None:
        if count == 1:
            return f"You were throttled: {delay}{share}."
        return f"You were throttled in {count:,} buckets; {most}."
    return f"{counted(count, 'bucket was', 'buckets were')} throttled; {most}."


def _bars(report: AuditReport, ordered: list[ThrottledBucket]) -> Block:
    shown = ordered[:_MOST_BARS]
    # JMX has no sums: if it is the only source, the bars are shares of samples.
    has_delay = any(one.delay_ms for one in shown)
    data = {
        "labels": _labels(report, shown),
        "values": [
            one.delay_ms / 1_000 if has_delay else round(one.time_throttled_percent, 4) for one in shown
        ],
        "suffix": " s" if has_delay else " %",
        "texts": [
            f"{person_ms(one.delay_ms)} · {words.throttled_time(one)}"
            if one.delay_ms
            else words.throttled_time(one)
            for one in shown
        ],
        "is_over": [one.time_throttled_percent > OBJECTIVE_PERCENT for one in shown],
        "hrefs": [words.bucket_href(one.bucket) for one in shown],
        "hover": [", ".join(_hover(one)) for one in shown],
    }
    what = "Total delay" if has_delay else "Time throttled"
    label = f"{what}, {counted(len(shown), 'bucket')}, most first"
    rows = (_row(report, one) for one in ordered)
    return Block(
        what,
        "Total delay is the sum of all throttle times. Time throttled is the seconds in which a throttle began or "
        "still ran on any broker, as share of the period.",
        Chart("chart-throttled", "bars", label, data),
        table_of(
            "Buckets that were throttled", _COLUMNS, rows, len(ordered) + report.throttled_left_out, "buckets"
        ),
        is_table_open=True,
    )


def _hover(one: ThrottledBucket) -> Iterator[str]:
    share = words.throttled_time(one)
    yield f"{words.type_word(one.bucket.quota_type)}: {share} of the time"
    if one.throttled_requests is not None:
        yield counted(one.throttled_requests, "throttled request")
    if one.delay_ms:
        yield f"total delay {person_ms(one.delay_ms)}"


def _spreads(report: AuditReport) -> Iterator[Block]:
    """The throttle times of single requests, as steps that rise from 0 to 100 % of the requests."""
    spreads = report.throttle_spreads
    if not spreads:
        return
    is_own = report.head.tenant is not None
    names = ["you" if is_own else one.user or "(no user)" for one in spreads]
    data = {"labels": names, "percentiles": [one.percentiles_ms for one in spreads]}
    columns = (
        Column("user"),
        *Column.numbers("throttled requests", "half up to", "95 % up to", "longest", "total delay"),
    )
    rows = (
        (
            Cell(name),
            words.count_cell(one.requests),
            *(words.throttles_cell(one.percentiles_ms[percent]) for percent in _PERCENTS),
            words.throttles_cell(one.delay_ms),
        )
        for name, one in zip(names, spreads, strict=True)
    )
    who = "your requests" if is_own else "requests by user"
    users = counted(len(names), "user")
    label = f"Share of throttled {who} up to a throttle of that length, by brokers, from {users}"
    yield Block(
        "How long a throttle was",
        "Share of the throttled requests with a throttle of at most so long. Dots: half, 95 % and the longest.",
        Chart("chart-lengths", "lengths", label, data),
        table_of("Throttles of single requests", columns, rows, len(spreads), "users"),
    )


def _labels(report: AuditReport, shown: list[ThrottledBucket]) -> list[str]:
    """The names of the buckets, with the quota type where two buckets have the same name."""
    names = [_name(report, one) for one in shown]
    return [
        name if names.count(name) == 1 else f"{name}, {words.type_word(one.bucket.quota_type)}"
        for name, one in zip(names, shown, strict=True)
    ]


def _row(report: AuditReport, one: ThrottledBucket) -> tuple[Cell, ...]:
    percent = one.time_throttled_percent
    return (
        Cell(_name(report, one), href=words.bucket_href(one.bucket)),
        Cell(words.type_word(one.bucket.quota_type)),
        Cell(words.throttled_time(one), f"{one.time_throttled_s:,} s, {percent:.4f} %", bar_percent=percent),
        Cell("-") if one.throttled_requests is None else words.count_cell(one.throttled_requests),
        words.throttles_cell(one.delay_ms),
        Cell("-") if one.shared_with else words.count_cell(one.episodes),
        words.used_cell(one.peak_quota_used_percent),
        words.rate_cell(one.bucket.quota_type, one.limit_per_s, "-"),
        Cell(broker_text(one.worst_broker_id)),
        Cell(", ".join(one.clients)),
    )


def _name(report: AuditReport, one: ThrottledBucket) -> str:
    shared = f" (shared with {counted(one.shared_with, 'other')})" if one.shared_with else ""
    return f"{words.bucket_of(one.bucket, report.head)}{shared}"


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each throttled bucket, and one for each user with the percentiles of its throttle times."""
    return {
        "throttled.csv": CsvFile(
            (*BUCKET_COLUMNS, *_OF_FILE, "clients"),
            (
                (*names_of(one.bucket), *values_of(one, _OF_FILE), ", ".join(one.clients))
                for one in report.throttled
            ),
        ),
        "throttles.csv": CsvFile(
            ("user", "requests", "delay_ms", *(f"p{percent}_ms" for percent in _PERCENTS)),
            (
                (one.user, one.requests, one.delay_ms, *(one.percentiles_ms[each] for each in _PERCENTS))
                for one in report.throttle_spreads
            ),
        ),
    }


SECTION = ReportSection(gather, throttled_section, files)
