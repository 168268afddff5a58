"""The count equation: every line of the log topic is in the tables once, hop by hop.

Hops are compared second by second, not by their totals: a surplus row in one second must not hide a missing row in
another. Rows newer than the newest second of the next hop are "not yet", never "lost".
"""

from __future__ import annotations

from typing import Any

from kquota_spark.pipeline.ingest import set_aside
from kquota_spark.process.check import Check, fail, ok, warn
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables, utc_text

_STILL_MOVING_MS = 300_000
"""Age (ms) below which a difference is only a warning: while the job runs, a hop may have read part of a commit."""
_TOO_MANY_COPIES = 0.01

_LINES = """
select cluster_id, sum(coalesce(lines, 1))::bigint as lines, count(*) filter (kind = 'request') as requests,
       count(*) filter (kind = 'unreadable') as unreadable,
       coalesce(sum(lines) filter (kind = 'left_out'), 0)::bigint as left_out,
       count(*) filter (kind = 'heartbeat') as heartbeats, count(*) filter (kind = 'gap') as gaps,
       max(record_time_ms) filter (kind = 'gap') as last_gap_ms,
       count(*) filter (is_out_of_time) as out_of_time
from requests where topic is not null group by cluster_id order by cluster_id
"""
# Retention deletes whole dates of record times. Around the first midnight that remains, offsets and record times
# interleave. So in a table of several days, the first ten minutes are not compared.
_OFFSETS = """
with cut as (
  select cluster_id,
         if(count(distinct event_date) > 1, epoch_ms(min(event_date)::timestamp) + 600000, 0) as from_ms
  from requests where topic is not null group by cluster_id
), start as (
  select cluster_id, topic, "partition", min(coalesce(first_offset, kafka_offset)) as begin
  from requests join cut using (cluster_id) where topic is not null and kafka_timestamp_ms >= from_ms
  group by all
)
select cluster_id, topic, "partition", begin, max(kafka_offset) as last_offset,
       sum(coalesce(lines, 1))::bigint as lines, count(*) as rows,
       count(*) - count(distinct kafka_offset) as repeated
from requests join start using (cluster_id, topic, "partition")
where kafka_offset >= begin group by all order by all
"""
_FIRST_GAP = """
select before + 1, following - 1
from (
  select coalesce(first_offset, kafka_offset) as following, max(kafka_offset) over (
    order by coalesce(first_offset, kafka_offset) rows between unbounded preceding and 1 preceding) as before
  from requests where cluster_id = ? and topic = ? and "partition" = ? and kafka_offset >= ?
) where following > before + 1 order by before limit 1
"""
_COPIES = """
select coalesce(sum(copies - 1), 0)::bigint
from (
  select count(*) as copies from requests where kind = 'request' and cluster_id = ?
  group by broker_id, connection, correlation_id, api_key, log_time_ms having count(*) > 1
)
"""
# One grouping of both hops, by the second as it is stored. With ten million rows in each hop, two groupings and a join
# take half as long again.
_MEASURED = f"""
select cluster_id, broker_id, make_timestamptz(record_time_ms // 1000 * 1000000) as second,
       coalesce(lines, 1) as due, null as kept, null as copies
from requests where quota_type is not null and not {{set_aside}}
union all
select cluster_id, broker_id, usage.second, null, requests, duplicates from usage
where {FROM_LOG} and event_date >= (select min(event_date) from requests) and quota_type in ('produce', 'fetch')
"""  # noqa: S608 - a condition of ours
_JUDGED = f"""
select cluster_id, broker_id, quota_type, usage.second, requests as due, null as kept, null as copies
from usage where {FROM_LOG}
union all
select cluster_id, broker_id, quota_type, decisions.second, null, requests, coalesce(late, 0) from decisions
where {FROM_LOG} and event_date >= (select min(event_date) from usage)
"""  # noqa: S608 - a condition of ours
_COMPARED = """
with compared as (
  select {keys}, sum(due) as due, sum(kept) as kept, sum(copies) as copies from ({hops}) group by all
), newest as (select cluster_id, max(second) as newest from compared where kept is not null group by cluster_id),
pairs as (
  select cluster_id, second, coalesce(due, 0) as due, coalesce(kept, 0) as kept, coalesce(copies, 0) as copies,
         coalesce(kept, 0) + coalesce(copies, 0) as done, newest, coalesce(second > newest, true) as is_pending
  from compared left join newest using (cluster_id)
)
select cluster_id, sum(due)::bigint as due, sum(kept)::bigint as kept, sum(copies)::bigint as copies,
       coalesce(sum(due) filter (is_pending), 0)::bigint as pending,
       coalesce(sum(due - done) filter (not is_pending and due > done), 0)::bigint as missing,
       coalesce(sum(done - due) filter (done > due), 0)::bigint as surplus,
       epoch_ms(min(second) filter (not is_pending and due <> done)) as first_ms,
       epoch_ms(max(second) filter (not is_pending and due <> done)) as last_ms,
       epoch_ms(max(newest)) as newest_ms
from pairs group by cluster_id order by cluster_id
"""
_TO_DECISIONS = _COMPARED.format(keys="cluster_id, broker_id, quota_type, second", hops=_JUDGED)


def line_checks(tables: Tables) -> list[Check]:
    """Compare the lines of the topic with the rows of `requests`: kinds, offsets, copies, lines from the future."""
    rows = tables.query(_LINES).dicts()
    if not rows:
        return [warn("lines", "the table requests holds no line", "start the shippers and the audit")]
    checks = []
    for row in rows:
        copies = int(tables.query(_COPIES, [row["cluster_id"]]).rows[0][0])
        checks += [_kinds(row), *_copies_and_future(row, copies)]
    return checks + [_offsets(tables, row) for row in tables.query(_OFFSETS).dicts()]


def _kinds(row: dict[str, Any]) -> Check:
    known = row["requests"] + row["unreadable"] + row["heartbeats"] + row["gaps"] + row["left_out"]
    evidence = (
        f"{row['cluster_id']}: {row['lines']:,} lines = {row['requests']:,} requests + "
        f"{row['unreadable']:,} unreadable + {row['heartbeats']:,} heartbeats"
    )
    if row["gaps"]:
        evidence += f" + {row['gaps']:,} gaps"
    if row["left_out"]:
        evidence += f" + {row['left_out']:,} left out (tables.requests)"
    if known == row["lines"]:
        return ok("lines", evidence)
    evidence += f" + {row['lines'] - known:,} of no known kind"
    return fail("lines", evidence, "the table was written by another release: use that one")


def _copies_and_future(row: dict[str, Any], copies: int) -> list[Check]:
    cluster = row["cluster_id"]
    evidence = f"{cluster}: {copies:,} lines came more than once; each counts once"
    if copies > _TOO_MANY_COPIES * row["requests"]:
        advice = "usual after a restart of a shipper; if it stays, check for two shippers on one log file"
        checks = [warn("duplicates", evidence, advice)]
    else:
        checks = [ok("duplicates", evidence)]
    if row["gaps"]:
        last = utc_text(row["last_gap_ms"])
        evidence = f"{cluster}: shippers reported lost lines {row['gaps']:,} times, the last before {last}"
        advice = "verdicts there are uncertain (log_gaps): let rotation keep files until they are shipped"
        checks.append(warn("gaps", evidence, advice))
    if row["out_of_time"]:
        evidence = f"{cluster}: {row['out_of_time']:,} lines are ahead of their message or its reading"
        advice = "they are kept and not judged: check broker.log_time_zone and the clocks of the brokers"
        checks.append(warn("future lines", evidence, advice))
    return checks


def _offsets(tables: Tables, row: dict[str, Any]) -> Check:
    place = f"{row['cluster_id']}: {row['topic']}-{row['partition']}"
    first, last, doubled = row["begin"], row["last_offset"], row["repeated"]
    missing = last - first + 1 - row["lines"]
    if doubled:
        evidence = f"{place}: {doubled:,} of {row['rows']:,} rows repeat an offset"
        advice = "two jobs wrote one table: rebuild it from the topic into a new path"
        return fail("offsets", evidence, advice)
    if missing:
        position = [row["cluster_id"], row["topic"], row["partition"], first]
        ((gap_from, gap_to),) = tables.query(_FIRST_GAP, position).rows
        evidence = f"{place}: {missing:,} offsets missing, the first {gap_from} to {gap_to}"
        advice = (
            "lines expired before they were read: raise retention.ms of the topic and keep ingest running "
            "(markers of a transactional producer take offsets, too)"
        )
        return fail("offsets", evidence, advice)
    return ok("offsets", f"{place}: {first} to {last} without a gap")


def measured_checks(tables: Tables, clock_skew_ms: int) -> list[Check]:
    """Compare the chargeable rows of `requests` with `usage`: measured, copies, not yet measured, late.

    Lines that the job set aside because its own clock was behind count as late; `kquota restate` takes them in. Lines
    ahead of their messages by more than `clock_skew_ms` are not chargeable.
    """
    checks = []
    hops = _MEASURED.format(set_aside=set_aside(clock_skew_ms))
    to_usage = _COMPARED.format(keys="cluster_id, broker_id, second", hops=hops)
    for row in tables.query(to_usage).dicts():
        evidence = (
            f"{row['cluster_id']}: {row['due']:,} chargeable requests = {row['kept']:,} in usage + "
            f"{row['copies']:,} copies + {row['pending']:,} not yet measured + {row['missing']:,} late"
        )
        if row["surplus"]:
            evidence += f"; usage holds {row['surplus']:,} that requests does not, {_period_text(row)}"
            checks.append(fail("measured", evidence, "usage was written twice: restate that period"))
        elif row["missing"]:
            advice = (
                "they came after their second was closed: restate that period, raise stream.allowed_lateness"
            )
            checks.append(warn("measured", f"{evidence}, {_period_text(row)}", advice))
        else:
            checks.append(ok("measured", evidence))
    return checks


def judged_checks(tables: Tables, now_ms: int) -> list[Check]:
    """Compare `usage` with `decisions`: judged, late, not yet judged, missing."""
    checks = []
    for row in tables.query(_TO_DECISIONS).dicts():
        evidence = (
            f"{row['cluster_id']}: {row['due']:,} requests in usage = {row['kept']:,} in decisions + "
            f"{row['copies']:,} late + {row['pending']:,} not yet judged"
        )
        if row["surplus"]:
            evidence += f"; decisions hold {row['surplus']:,} that usage does not, {_period_text(row)}"
            checks.append(fail("judged", evidence, "seconds were judged twice: restate that period"))
        elif row["missing"]:
            evidence += f" + {row['missing']:,} missing, {_period_text(row)}"
            is_moving = now_ms - row["newest_ms"] < _STILL_MOVING_MS
            advice = "restate that period; if the job is running, check again in a minute"
            checks.append((warn if is_moving else fail)("judged", evidence, advice))
        elif row["copies"]:
            advice = "their seconds had been judged already and are uncertain until restated"
            checks.append(warn("judged", evidence, advice))
        else:
            checks.append(ok("judged", evidence))
    return checks


def _period_text(row: dict[str, Any]) -> str:
    return f"from {utc_text(row['first_ms'])} to {utc_text(row['last_ms'] + 1_000)}"
