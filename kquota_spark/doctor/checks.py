"""The checks of `kquota doctor` after a run: whether every line is counted, and whether a report can be trusted.

Tables are opened from the last hop to the first. While the job runs, the snapshots of earlier hops are then newer and
have more rows. Those rows are "not yet measured" or "not yet judged", never "lost".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.doctor.counts import judged_checks, line_checks, measured_checks
from kquota_spark.doctor.shadow_checks import shadow_checks
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import person_ms
from kquota_spark.kafka.broker_configs import config_checks, stored_configs
from kquota_spark.model.quotas.rules import END_MS, is_ahead
from kquota_spark.pipeline.ingest import clock_skew_ms
from kquota_spark.process.check import Check, fail, ok, warn
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables, utc_text

_LAST_TO_FIRST = ("violations", "decisions", "usage", "requests", "quota_rules")
_AGREEMENT_PERCENT = 99.0
_UNREADABLE_WARN, _UNREADABLE_FAIL = 0.001, 0.5
_SLACK_MS = 30_000
_FINISHED = " (expected after a finished run)"
MANY_CLIENT_IDS = 10_000
"""Number of client ids of one user in `requests` from which on a warning is printed.

Each client id adds one row per second with traffic to `usage` and to `decisions`.
"""

_UNREADABLE = """
select cluster_id, coalesce(sum(coalesce(lines, 1)) filter (topic is not null), 0)::bigint as lines,
       count(*) filter (kind = 'unreadable') as unreadable
from requests group by cluster_id order by cluster_id
"""
_REASONS = """
select coalesce(reason, 'no reason given'), count(*) as times from {table}
where kind = 'unreadable' and cluster_id = ? group by all order by times desc, 1 limit 3
"""
_NEWEST = f"""
select r.cluster_id, r.kafka_ms, r.due_ms, u.usage_ms, d.decision_ms
from (
  select cluster_id, max(kafka_timestamp_ms) as kafka_ms,
         max(record_time_ms) filter (quota_type is not null and not coalesce(is_out_of_time, false)) as due_ms
  from requests where topic is not null group by cluster_id
) r
left join (
  select cluster_id, epoch_ms(max(second)) as usage_ms from usage where {FROM_LOG} group by 1
) u using (cluster_id)
left join (
  select cluster_id, epoch_ms(max(second)) as decision_ms from decisions where {FROM_LOG} group by 1
) d using (cluster_id)
order by cluster_id
"""  # noqa: S608 - a condition of ours
_RULES = """
select coalesce(d.cluster_id, q.cluster_id) as cluster_id, q.sources, q.known_ms, d.decision_ms, d.behind
from (
  select cluster_id, epoch_ms(max(second)) as decision_ms, count(*) filter (is_rules_behind) as behind
  from decisions group by cluster_id
) d
full join (
  select cluster_id, count(*) as sources, epoch_ms(max(known_through)) as known_ms
  from quota_sources group by cluster_id
) q using (cluster_id) order by 1
"""
_AGREEMENT = f"""
select cluster_id, quota_type,
       coalesce(sum(requests_judged), 0)::bigint as judged, coalesce(sum(requests_agreeing), 0)::bigint as agreeing,
       coalesce(sum(false_positive), 0)::bigint as false_positive,
       coalesce(sum(false_negative), 0)::bigint as false_negative,
       coalesce(sum(uncertain), 0)::bigint as uncertain, coalesce(sum(inferred), 0)::bigint as inferred,
       coalesce(sum(excluded), 0)::bigint as excluded
from decisions where {FROM_LOG} group by cluster_id, quota_type order by cluster_id, quota_type
"""  # noqa: S608 - a condition of ours
_EPISODES = """
select cluster_id, count(*) as episodes, count(*) filter (end_time is null) as open,
       epoch_ms(min(last_second) filter (end_time is null)) as oldest_ms, epoch_ms(max(clock)) as clock_ms
from violations
left join (
  select cluster_id, broker_id, source, max(second) as clock from decisions group by all
) using (cluster_id, broker_id, source)
group by cluster_id order by cluster_id
"""
_MOST_IDS = """
select cluster_id, coalesce("user", '') as "user", approx_count_distinct(client_id) as client_ids,
       count(*) as requests
from requests where quota_type is not null group by all
having client_ids >= ? order by client_ids desc, "user" limit 3
"""
# A connection is local-remote-number, addresses without a hyphen: 10.0.0.1:9092-10.1.2.3:40000-7
_SOURCE = r"""
select regexp_extract(connection, '-(.*):\d+-[\d-]+$', 1) as address, approx_count_distinct(client_id) as client_ids
from requests where quota_type is not null and cluster_id = ? and coalesce("user", '') = ?
group by all order by client_ids desc, address limit 1
"""
_SAMPLES = """
select cluster_id, count(*) filter (kind = 'sample') as samples, count(distinct broker_id) as brokers,
       count(distinct (topic, "partition", kafka_offset)) as messages,
       count(*) filter (kind = 'unreadable') as unreadable, count(*) filter (kind = 'other') as other,
       max(sample_time_ms) as newest_ms,
       count(*) filter (kind = 'sample' and coalesce(
         if(quota_type in ('produce', 'fetch'), byte_rate, null),
         if(quota_type = 'request', request_time_percent, null),
         if(quota_type = 'controller_mutation', mutation_rate, null),
         if(quota_type = 'connection' and ip is not null, connection_rate, null)) is not null) as rates
from jmx_samples group by cluster_id order by cluster_id
"""
_JUDGED_OF_JMX = "select count(*) from decisions where source = 'jmx' and cluster_id = ?"


def run_checks(settings: Settings, clock_ms: Callable[[], int]) -> Iterator[Check]:
    """All checks after a run, each yielded when it is done.

    A missing table is a finding, and the checks that need the table are skipped.

    Args:
        settings: the installation.
        clock_ms: the wall clock, epoch ms; read after the tables, so that these are not ahead of it.
    """
    with Tables(settings) as tables:
        names = (*_LAST_TO_FIRST, *(["jmx_samples"] if settings.kafka.jmx_topic else ()))
        missing = [check for name in names if (check := _missing(tables, name)) is not None]
        yield from missing
        now_ms = clock_ms()
        opened = set(names) - {check.what.removeprefix("table ") for check in missing}
        steps: Sequence[tuple[tuple[str, ...], Callable[[], list[Check]]]] = (
            (("requests",), lambda: line_checks(tables) if settings.kafka.has_log else []),
            (("requests",), lambda: _unreadable(tables)),
            (("requests",), lambda: growth_checks(tables)),
            (("requests", "usage"), lambda: measured_checks(tables, clock_skew_ms(settings))),
            (("usage", "decisions"), lambda: judged_checks(tables, now_ms)),
            (("requests", "usage", "decisions"), lambda: lag_checks(tables, settings, now_ms)),
            (("decisions", "quota_rules"), lambda: source_checks(tables, settings, now_ms)),
            (("decisions",), lambda: _agreement(tables)),
            (("violations", "decisions"), lambda: _episodes(tables, settings)),
            (("jmx_samples", "decisions"), lambda: jmx_checks(tables, settings, now_ms)),
        )
        for needs, run in steps:
            if opened.issuperset(needs):
                yield from run()
    yield from config_checks(stored_configs(settings), settings)
    yield from shadow_checks(settings)


def _missing(tables: Tables, name: str) -> Check | None:
    try:
        tables.open(name)
    except UserError as error:
        evidence, _, advice = str(error).partition(": ")
        return fail(f"table {name}", evidence, advice)
    return None


def _unreadable(tables: Tables) -> list[Check]:
    checks = []
    for row in tables.query(_UNREADABLE).dicts():
        cluster, share = row["cluster_id"], row["unreadable"] / max(row["lines"], 1)
        evidence = f"{cluster}: {row['unreadable']:,} of {row['lines']:,} lines ({100 * share:.3f} %)"
        if row["unreadable"]:
            evidence += _reasons(tables, "requests", cluster)
        advice = "kept in requests with reason and raw_text: fix what writes them, or the format"
        if share < _UNREADABLE_WARN:
            checks.append(ok("unreadable", evidence))
        else:
            checks.append((fail if share >= _UNREADABLE_FAIL else warn)("unreadable", evidence, advice))
    return checks


def _reasons(tables: Tables, table: str, cluster_id: str) -> str:
    """The three most frequent reasons why rows of the table could not be read, each with its count."""
    found = tables.query(_REASONS.format(table=table), [cluster_id]).rows
    return ": " + "; ".join(f"{times:,} {reason}" for reason, times in found)


def lag_checks(tables: Tables, settings: Settings, now_ms: int) -> list[Check]:
    """How far each hop is behind the one before it. Needs `requests`, `usage` and `decisions` opened."""
    stream = settings.stream
    hop_ms = 3 * stream.trigger + _SLACK_MS
    checks = []
    for row in tables.query(_NEWEST).dicts():
        cluster, kafka_ms, due_ms = row["cluster_id"], row["kafka_ms"], row["due_ms"]
        newest = f"{cluster}: the newest line is of {utc_text(kafka_ms)}"
        advice = "is the audit running, and do the shippers send?" + _FINISHED
        checks.append(_lag("ingest", newest, now_ms - kafka_ms, hop_ms, advice))
        steps = (
            ("measure", "usage", due_ms, row["usage_ms"], hop_ms + stream.allowed_lateness),
            ("judge", "decisions", row["usage_ms"], row["decision_ms"], hop_ms),
        )
        for what, table, given_ms, done_ms, allowed_ms in steps:
            if given_ms is None:
                continue
            through = "is empty" if done_ms is None else f"through {utc_text(done_ms)}"
            behind_ms = given_ms - done_ms if done_ms is not None else allowed_ms + 1
            advice = (
                "the query log stands still: see its log; seconds close only when brokers send heartbeats"
            )
            checks.append(_lag(what, f"{cluster}: {table} {through}", behind_ms, allowed_ms, advice))
    return checks


def _lag(what: str, evidence: str, behind_ms: int, allowed_ms: int, advice: str) -> Check:
    text = f"{evidence}, {person_ms(max(behind_ms, 0))} behind"
    return ok(what, text) if behind_ms <= allowed_ms else warn(what, text, advice)


def source_checks(tables: Tables, settings: Settings, now_ms: int) -> list[Check]:
    """Up to which time the quotas of each cluster are known. Needs `decisions` and `quota_rules` opened."""
    advice = "start the watcher (kquota watch) and keep it running beside the audit"
    rows = tables.query(_RULES).dicts()
    if not rows:
        return [fail("quota snapshot", "quota_rules has no row of a source (level 0)", advice)]
    return [_snapshot(row, settings, now_ms, advice) for row in rows]


def _snapshot(row: dict[str, Any], settings: Settings, now_ms: int, advice: str) -> Check:
    cluster, what = row["cluster_id"], "quota snapshot"
    if row["known_ms"] is None:
        return fail(what, f"{cluster}: no source reports how far its quotas are known", advice)
    evidence = f"{cluster}: quotas are known through {utc_text(row['known_ms'])}"
    if row["known_ms"] == END_MS:
        evidence = f"{cluster}: quotas of a file, without an end"
    if row["sources"] != 1:
        evidence = f"{cluster}: quota_rules has {row['sources']} sources (level 0), expected 1"
        return fail(what, evidence, "requests are judged once per source: keep one")
    if is_ahead(row["known_ms"], now_ms):
        wrong = "a clock was wrong: set it, then start the watcher (kquota watch), which writes the time anew"
        return fail(what, f"{evidence}, ahead of this clock", wrong)
    if row["behind"]:
        evidence += f"; {row['behind']:,} decisions were made with older ones and are marked rules_behind"
        return warn(what, evidence, "restate them; " + advice)
    age_ms = now_ms - row["known_ms"]
    if age_ms > settings.quotas.stale_after_ms:
        return warn(what, f"{evidence}, {person_ms(age_ms)} ago", advice + _FINISHED)
    return ok(what, evidence)


def _agreement(tables: Tables) -> list[Check]:
    checks = []
    for row in tables.query(_AGREEMENT).dicts():
        what, judged = f"agreement {row['quota_type']}", row["judged"]
        rest = (
            f"not judged: {row['uncertain']:,} uncertain, {row['inferred']:,} inferred, "
            f"{row['excluded']:,} under a request quota"
        )
        if not judged:
            checks.append(ok(what, f"{row['cluster_id']}: nothing to compare ({rest})"))
            continue
        percent = 100.0 * row["agreeing"] / judged
        alarms = _plural(row["false_positive"], "false alarm", "s")
        misses = _plural(row["false_negative"], "miss", "es")
        evidence = (
            f"{row['cluster_id']}: {percent:.2f} % of {judged:,} verdicts agree with the broker "
            f"({alarms}, {misses}); {rest}"
        )
        advice = (
            "check broker.quota_window_num, quota_window_size_seconds and version against the brokers, their "
            "clocks and log_time_zone, a request quota, and client.quota.callback.class"
        )
        is_good = percent >= _AGREEMENT_PERCENT
        checks.append(ok(what, evidence) if is_good else warn(what, evidence, advice))
    return checks


def _plural(count: int, noun: str, ending: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def _episodes(tables: Tables, settings: Settings) -> list[Check]:
    checks = []
    for row in tables.query(_EPISODES).dicts():
        evidence = f"{row['cluster_id']}: {row['episodes']:,} episodes, {row['open']:,} open"
        overdue_ms = settings.stream.episode_gap + 3 * settings.stream.trigger + _SLACK_MS
        is_overdue = row["open"] and row["clock_ms"] - row["oldest_ms"] > overdue_ms
        advice = "the query log stands still: see its log"
        text = f"{evidence}, one without a violated second since {utc_text(row['oldest_ms'] or 0)}"
        checks.append(warn("violations", text, advice) if is_overdue else ok("violations", evidence))
    return checks or [ok("violations", "none")]


def growth_checks(tables: Tables) -> list[Check]:
    """A warning for each of the three users with the most client ids, if they have `MANY_CLIENT_IDS` or more.

    Needs `requests` opened.
    """
    return [_offender(tables, row) for row in tables.query(_MOST_IDS, [MANY_CLIENT_IDS]).dicts()]


def _offender(tables: Tables, row: dict[str, Any]) -> Check:
    (address, ids), *_ = tables.query(_SOURCE, [row["cluster_id"], row["user"]]).rows
    user = f"user {row['user']}" if row["user"] else "users without a name"
    evidence = (
        f"{row['cluster_id']}: {user} sends about {row['client_ids']:,} client ids in {row['requests']:,} requests, "
        f"{ids:,} of them from {address or 'no address'}"
    )
    advice = (
        "each is a bucket of its own unless a quota of the user governs them: give the client a fixed client.id, or "
        "the user a quota; keep requests for a shorter time (maintain.retention)"
    )
    return warn("client ids", evidence, advice)


def jmx_checks(tables: Tables, settings: Settings, now_ms: int) -> list[Check]:
    """Whether JMX samples arrive and are judged. Needs `jmx_samples` and `decisions` opened."""
    rows = tables.query(_SAMPLES).dicts()
    if not rows:
        advice = "start a collector (kquota collect jmx) and the audit"
        return [warn("JMX samples", "the table jmx_samples is empty", advice)]
    checks = []
    for row in rows:
        checks += [_samples_read(tables, row), _rates_judged(tables, row, settings, now_ms)]
        if row["newest_ms"] is not None:
            checks.append(_sample_age(row, settings, now_ms))
    return checks


def _samples_read(tables: Tables, row: dict[str, Any]) -> Check:
    evidence = (
        f"{row['cluster_id']}: {row['messages']:,} messages gave {row['samples']:,} samples, of "
        f"brokers: {row['brokers']}; {row['other']:,} hold no metric of a quota, {row['unreadable']:,} cannot be read"
    )
    if not row["unreadable"]:
        return ok("JMX samples", evidence)
    evidence += _reasons(tables, "jmx_samples", row["cluster_id"])
    advice = "kept in jmx_samples with reason and raw_text: correct the collector's configuration"
    return (warn if row["samples"] else fail)("JMX samples", evidence, advice)


def _rates_judged(tables: Tables, row: dict[str, Any], settings: Settings, now_ms: int) -> Check:
    judged = int(tables.query(_JUDGED_OF_JMX, [row["cluster_id"]]).rows[0][0])
    evidence = f"{row['cluster_id']}: {judged:,} decisions of {row['rates']:,} sampled rates"
    age_ms = now_ms - (row["newest_ms"] or 0)
    if judged < row["rates"] and age_ms > 3 * settings.stream.trigger + _SLACK_MS:
        return fail("JMX judged", evidence, "the query jmx stands still: see its log")
    return ok("JMX judged", evidence)


def _sample_age(row: dict[str, Any], settings: Settings, now_ms: int) -> Check:
    age_ms = max(now_ms - row["newest_ms"], 0)
    evidence = f"{row['cluster_id']}: through {utc_text(row['newest_ms'])}, {person_ms(age_ms)} behind"
    if age_ms <= 3 * settings.stream.trigger + 3 * settings.collect.jmx.interval + _SLACK_MS:
        return ok("JMX age", evidence)
    advice = "does the collector run, and the query jmx?" + _FINISHED
    return warn("JMX age", evidence, advice)
