"""The kept causes of closed violations, from the table `causes`: nothing is replayed for them.

They are what a replay found when the day of the violation was closed. They stay when the requests are deleted. They
count only while the violation has the figures that it had then: `kquota restate` may change these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from kquota_spark.model.attribution.causes import Attribution, Part
from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.attribution.sharing import Sharing, Slowed
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.recorded import Wanted
from kquota_spark.schema.cause_table import CAUSES
from kquota_spark.schema.tables import VIOLATIONS
from kquota_spark.store.reading import Tables

INPUTS = """md5(concat_ws('|', epoch_ms(violations.start_time), epoch_ms(violations.end_time),
  coalesce(violations.limit_per_s::varchar, '-'), coalesce(throttled_ms::varchar, '-'),
  coalesce(throttled_requests::varchar, '-'), coalesce(observed_throttled_ms::varchar, '-'),
  coalesce(observed_throttled_requests::varchar, '-'), violated_seconds, coalesce(violations.rule, '-')))"""
"""SQL: the column `inputs` of the causes of a violation, by what the violation has now."""
_DELAYS = ("caused_ms", "suffered_ms", "caused_to_others_ms", "standard_error_ms")
"""Names in `slowed` of the fields of `Slowed` after the client."""
_KEPT = f"""
with asked as (
  select unnest(?::int[]) as place, unnest(?::varchar[]) as asked_type, unnest(?::varchar[]) as asked_user,
         unnest(?::varchar[]) as asked_client_id, unnest(?::bigint[]) as from_ms, unnest(?::bigint[]) as to_ms
), closed as (
  select place, min_by((violations.cluster_id, episode_id, {INPUTS}), episode_id) as of_one
  from violations join asked on quota_type = asked_type and bucket_user = asked_user
    and bucket_client_id = asked_client_id and epoch_ms(violations.start_time) = from_ms
    and epoch_ms(violations.end_time) = to_ms
  where violations.cluster_id = ? and bucket_tags is null
    and violations.start_time between make_timestamptz(?::bigint) and make_timestamptz(?::bigint)
  group by place
)
select place, rank, cause, share_percent, share_ms, delay_without_ms, evidence, limit_per_s, delay_ms,
       delay_by_replay_ms, clients, epoch_ms(replayed_until) as replayed_until_ms, slowed
from causes join closed on (causes.cluster_id, episode_id, inputs) = of_one
where causes.start_time between make_timestamptz(?::bigint) and make_timestamptz(?::bigint)
order by place, rank
"""  # noqa: S608 - names of ours


def kept_reasons(tables: Tables, cluster_id: str, wanted: Sequence[Wanted]) -> dict[Wanted, Reasons]:
    """The kept answers. A bucket and period that is no closed violation with kept causes has none.

    They are without `Reasons.fairness`, and without the matrix of `Reasons.sharing`.

    Args:
        tables: the tables, of which `causes` and `violations` are opened if they exist.
        cluster_id: the cluster of the buckets.
        wanted: buckets and periods.

    Raises:
        UserError: a table cannot be read.
    """
    names = CAUSES.name, VIOLATIONS.name
    if not wanted or not all(tables.location(name) is not None for name in names):
        return {}
    for name in names:
        tables.open(name)
    during = min(one.from_ms for one in wanted) * 1_000, max(one.from_ms for one in wanted) * 1_000
    asked = [
        list(range(len(wanted))),
        [one.bucket.quota_type for one in wanted],
        [one.bucket.user for one in wanted],
        [one.bucket.client_id for one in wanted],
        [one.from_ms for one in wanted],
        [one.to_ms for one in wanted],
    ]
    rows = tables.query(_KEPT, [*asked, cluster_id, *during, *during]).dicts()
    found = {}
    for place, of_one in groupby(rows, key=itemgetter("place")):
        answer = _answer(wanted[place], list(of_one))
        if answer is not None:
            found[wanted[place]] = answer
    return found


def _answer(one: Wanted, rows: Sequence[Mapping[str, Any]]) -> Reasons | None:
    """The answer that the rows of a violation have; None if a newer release kept a cause that this one lacks."""
    *causes, rest = rows
    known = {cause.value: cause for cause in Cause}
    if any(row["cause"] not in known for row in rows):
        return None
    parts = tuple(
        Part(
            known[row["cause"]], json.loads(row["evidence"]), row["share_ms"], row["share_percent"],
            row["delay_without_ms"],
        )
        for row in causes
    )  # fmt: skip
    return Reasons(
        one.bucket,
        one.from_ms,
        rest["replayed_until_ms"],
        rest["limit_per_s"],
        rest["delay_ms"],
        Attribution(rest["delay_by_replay_ms"], rest["share_ms"], parts),
        rest["clients"],
        None if rest["slowed"] is None else _sharing(json.loads(rest["slowed"])),
    )


def slowed_text(sharing: Sharing | None) -> str | None:
    """The column `slowed`: who slowed whom in a shared bucket, as JSON; None for a bucket with one client."""
    if sharing is None:
        return None
    clients = [
        {"user": each.client[0], "client_id": each.client[1], **dict(zip(_DELAYS, each[1:], strict=True))}
        for each in sharing.clients
    ]
    return json.dumps(
        {"clients": clients, "clients_together": sharing.others, "drawn_orders": sharing.orders}
    )


def _sharing(slowed: Mapping[str, Any]) -> Sharing:
    clients = tuple(
        Slowed((each["user"], each["client_id"]), *(each[name] for name in _DELAYS))
        for each in slowed["clients"]
    )
    return Sharing(clients, {}, slowed["clients_together"], slowed["drawn_orders"])
