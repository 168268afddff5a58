"""Events of one client's bucket: edits of its quotas, enforcement, changed limits, episodes, gaps."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kquota_spark.formats.text.person_units import person_ms, person_span
from kquota_spark.model.quotas.resolve import candidates
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.timeline_slots import Identity, seconds_sql
from kquota_spark.reports.timeline.events import Event, merged
from kquota_spark.schema.gap_tables import BROKER_START
from kquota_spark.schema.harm import EPISODE_DELAY_MS, EPISODE_END, EPISODE_REQUESTS
from kquota_spark.store.reading import Tables

EDIT_MS = 60_000
"""Maximum time (ms) between an AlterClientQuotas request and its edit."""
_STEPS = """
with {seconds}, steps as (
  select second_ms, limit_per_s, rule, bucket_user, bucket_client_id, bucket_tags,
         lag(struct_pack(limit_per_s := limit_per_s, rule := rule, bucket_user := bucket_user,
             bucket_client_id := bucket_client_id, bucket_tags := bucket_tags)) over (order by second_ms) as was
  from seconds
)
select * from steps where was is not null and (limit_per_s is distinct from was.limit_per_s
  or rule is distinct from was.rule or bucket_user <> was.bucket_user or bucket_client_id <> was.bucket_client_id)
order by second_ms
"""
_CHANGES = """
select epoch_ms(coalesce(changed_before, changed_at)) as time_ms, entity, previous_value, value, source, problem,
       changed_before is not null as is_polled
from quota_changes
where cluster_id = ? and list_contains(?::varchar[], entity) and ("key" = ? or ("key" is null and problem is not null))
  and epoch_ms(coalesce(changed_before, changed_at)) >= ? and epoch_ms(coalesce(changed_before, changed_at)) < ?
order by time_ms, entity
"""
_ENFORCEMENT = """
select epoch_ms("at") as time_ms, sequence, step, event, entity, value_before, value_after, policy, reason, actor,
       guard, mode, detail, plan_id
from enforcement_log
where cluster_id = ? and list_contains(?::varchar[], entity) and "key" = ? and event not in ('sending', 'restoring')
  and epoch_ms("at") >= ? and epoch_ms("at") < ?
order by sequence
"""
_VIOLATIONS = f"""
select epoch_ms(start_time) as time_ms, epoch_ms(end_time) as until_ms, limit_per_s, peak_rate_per_s,
       peak_quota_used_percent, {EPISODE_DELAY_MS} as throttled_ms, {EPISODE_REQUESTS} as throttled_requests
from violations
where cluster_id = ? and broker_id = ? and quota_type = ? and bucket_user = ? and bucket_client_id = ?
  and coalesce(bucket_tags, '') = ? and epoch_ms(start_time) < ?
  and epoch_ms({EPISODE_END}) > ?
order by time_ms
"""  # noqa: S608 - names of ours
_GAPS = """
select epoch_ms(from_time) as time_ms, epoch_ms(to_time) as until_ms, reason from log_gaps
where cluster_id = ? and broker_id = ? and reason <> ? and epoch_ms(from_time) < ? and epoch_ms(to_time) > ?
order by time_ms
"""
EDIT_REQUESTS = """
select record_time_ms as time_ms, "user", client_id, altered_quotas from requests
where cluster_id = ? and record_time_ms >= ? and record_time_ms < ? and api_key = 49 and altered_quotas is not null
order by record_time_ms
"""


def events_of(
    tables: Tables,
    who: Identity,
    period: Period,
    keys: Sequence[BucketKey],
    rules: Collection[str],
    key: str,
) -> list[Event]:
    """All events of the period by time; missing tables, other than `decisions`, add none.

    Args:
        tables: with `decisions` opened.
        who: the client.
        period: the period.
        keys: buckets, all on one broker and of one quota type.
        rules: names of the entities that governed them.
        key: Kafka's key of the quota type, e.g. `producer_byte_rate`.
    """
    if not keys:
        return []
    of_quota = (keys[0].cluster_id, sorted({*rules, *_entities(who, keys)}), key, *period)
    steps = _enforcement(_rows(tables, "enforcement_log", _ENFORCEMENT, of_quota))
    changes = _rows(tables, "quota_changes", _CHANGES, of_quota)
    requests: list[dict[str, Any]] = []
    if changes and tables.open_if_there("requests", period.from_ms - EDIT_MS):
        around = (keys[0].cluster_id, period.from_ms - EDIT_MS, period.to_ms)
        requests = tables.query(EDIT_REQUESTS, around).dicts()
    found = merged(steps, _config(changes, key, requests), _limits(tables, who, period, keys), key)
    for one in keys:
        rows = _rows(tables, "violations", _VIOLATIONS, (*one, period.to_ms, period.from_ms))
        found += (_episode(row) for row in rows)
    of_gaps = (keys[0].cluster_id, keys[0].broker_id, BROKER_START, period.to_ms, period.from_ms)
    for row in _rows(tables, "log_gaps", _GAPS, of_gaps):
        found.append(Event(row["time_ms"], "gap", f"no log: {row['reason']}", until_ms=row["until_ms"]))
    # Episodes begin at a whole second: in one second a change comes before its effect.
    return sorted(found, key=lambda event: (event.time_ms // 1_000, not event.has_values, event.time_ms))


def _rows(tables: Tables, table: str, sql: str, values: Sequence[object]) -> list[dict[str, Any]]:
    return tables.query(sql, values).dicts() if tables.open_if_there(table) else []


def _entities(who: Identity, keys: Sequence[BucketKey]) -> Iterator[str]:
    """All entities that could have governed the client or its buckets."""
    for key in keys:
        user, client_id = who.user or key.user, who.client_id or key.client_id
        # Without a user, only rules of the client id alone are wanted, not those of the default user.
        yield from (str(entity) for entity in candidates(user, client_id) if user or entity.user is None)


def _config(
    changes: Sequence[Mapping[str, Any]], key: str, requests: Sequence[Mapping[str, Any]]
) -> Iterator[Event]:
    for row in changes:
        time_ms, entity, value = row["time_ms"], row["entity"], row["value"]
        if row["problem"] is not None:
            yield Event(time_ms, "problem", f"{entity} cannot be read: {row['problem']}")
            continue
        seen = f", seen by a poll of {row['source']}" if row["is_polled"] else ""
        by = editor_of(requests, [entity, key, value], time_ms)
        before = row["previous_value"]
        yield Event(time_ms, "config", f"{entity} {key}{seen}", before, value, by, entity=entity)


def editor_of(requests: Sequence[Mapping[str, Any]], edit: list[object], time_ms: int) -> str | None:
    """The user and client id that asked a broker for an edit; None if unknown: a write to ZooKeeper has no sender."""
    for row in reversed(requests):
        is_near = -1_000 <= time_ms - row["time_ms"] < EDIT_MS
        if is_near and edit in json.loads(row["altered_quotas"]):
            return f"user {row['user']} ({row['client_id']})"
    return None


def _enforcement(rows: Sequence[Mapping[str, Any]]) -> Iterator[Event]:
    """One event per step, and one more for its end: the log has a row for everything that happened to it."""
    by_step: dict[tuple[str, int, bool], list[Mapping[str, Any]]] = {}
    applied: set[tuple[str, int]] = set()
    for row in rows:
        step = row["plan_id"], row["step"]
        # What happens after it was applied belongs to its end.
        is_end = step in applied or row["event"] == "restored"
        by_step.setdefault((*step, is_end), []).append(row)
        if row["event"] == "applied":
            applied.add(step)
    for of_step in by_step.values():
        yield _step(of_step)


def _step(rows: Sequence[Mapping[str, Any]]) -> Event:
    """One change from the rows of its step, oldest first."""
    times = {row["event"]: row["time_ms"] for row in reversed(rows)}
    authors = [row["actor"] for row in rows if row["event"] == "planned"]
    last = next((row for row in reversed(rows) if row["event"] in ("applied", "restored")), rows[-1])
    is_override, event, entity = last["policy"] == "override", last["event"], last["entity"]
    before, after = last["value_before"], last["value_after"]
    if event == "restored":
        before, after = after, before
    of_policy = "" if is_override else f"policy {last['policy']}, "
    why = f"{last['guard']}: {last['detail']}" if last["guard"] else last["detail"]
    mode = f" ({last['mode']})" if event == "planned" else ""
    quoted = f'"{last["reason"]}"'
    parts = [f"{of_policy}{entity}, plan {last['plan_id']}{mode} {quoted}"]
    parts += [why] if why else []
    return Event(
        last["time_ms"],
        "override" if is_override else "enforcement",
        ": ".join(parts),
        before,
        after,
        authors[0] if authors and event != "restored" else last["actor"],
        entity=entity,
        status=event,
        planned_at_ms=times.get("planned"),
        approved_at_ms=times.get("approved"),
    )


def _limits(tables: Tables, who: Identity, period: Period, keys: Sequence[BucketKey]) -> Iterator[Event]:
    seconds, values = seconds_sql(who, period, keys)
    for row in tables.query(_STEPS.format(seconds=seconds), values).dicts():
        was = row["was"]
        what = f"in force by {row['rule'] or 'no rule'}"
        if any(row[name] != was[name] for name in ("bucket_user", "bucket_client_id", "bucket_tags")):
            tags = (row["bucket_user"], row["bucket_client_id"], row["bucket_tags"] or "")
            what += f", in a new bucket: {' / '.join(filter(None, tags))}"
        elif row["rule"] != was["rule"]:
            what += f", before by {was['rule'] or 'no rule'}"
        yield Event(
            row["second_ms"],
            "limit",
            what,
            was["limit_per_s"],
            row["limit_per_s"],
            entity=row["rule"] or "",
            entity_before=was["rule"] or "",
        )


def _episode(row: Mapping[str, Any]) -> Event:
    until_ms = row["until_ms"]
    lasted = "open" if until_ms is None else person_span(until_ms - row["time_ms"])
    throttled = "" if row["throttled_ms"] is None else (
        f", total delay {person_ms(row['throttled_ms'])} of {_requests(row['throttled_requests'])}"
    )  # fmt: skip
    what = f"over the limit, {lasted}, at most {row['peak_quota_used_percent']:.0f} %{throttled}"
    return Event(row["time_ms"], "violation", what, until_ms=until_ms)


def _requests(count: int) -> str:
    return f"{count:,} request{'' if count == 1 else 's'}"
