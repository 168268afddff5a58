"""`kquota decisions`: the decisions for every second of every quota bucket, newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kquota_spark.cli.options import bucket_columns
from kquota_spark.cli.question import Question, by_sql, column, own_column
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.formats.text.person_units import or_dash, person_count, person_pair_ms
from kquota_spark.schema.figures import figures_sql
from kquota_spark.schema.tables import DECISIONS

COMMANDS = {
    "decisions": (
        "answers",
        "every second of every quota bucket, judged as the broker does",
        "kquota decisions --user alice --since 10m",
        "kquota decisions --throttled --output csv",
    ),
}

_SQL = f"""
select cluster_id, broker_id, quota_type, bucket_user, bucket_client_id, bucket_tags, epoch_ms(second) as second,
       level, rule, rule_version, limit_per_s, rate_per_s, quota_used_percent, amount, requests,
       {figures_sql(DECISIONS)}, unsized_requests,
       coalesce(late, 0) as late, is_certain, is_rules_behind, source,
       users, client_ids
from decisions
"""  # noqa: S608 - names of ours
_THROTTLED = """(decisions.throttled_requests > 0 or decisions.observed_throttled_requests > 0
  or (source = 'jmx' and decisions.observed_throttle_ms > 0))"""


def _shown(_: Sequence[Row]) -> Iterator[Shown]:
    yield from bucket_columns()
    yield column("limit_per_s", rank=4)
    yield column("rate_per_s", rank=5)
    yield column("quota_used_percent", rank=3)
    yield _pair(
        "longest throttle",
        lambda row: person_pair_ms(row["longest_throttle_by_replay_ms"], row["longest_throttle_ms"]),
    )
    yield Shown("requests", _requests, rank=8)
    yield Shown("certain", _certain, rank=7)
    yield _pair("total delay", _total_delay, rank=11)
    yield _pair("throttled requests", _throttled_requests, rank=12)


def _pair(title: str, text: Callable[[Row], str], rank: int = 0) -> Shown:
    return own_column(title, text, rank=rank, about="by replay / by brokers")


def _requests(row: Row) -> str:
    return or_dash(row["requests"], lambda requests: person_count(requests + row["late"]))


def _certain(row: Row) -> str:
    return "jmx" if row["source"] == "jmx" else "yes" if row["is_certain"] else "no"


def _total_delay(row: Row) -> str:
    return person_pair_ms(row["delay_by_replay_ms"], row["delay_ms"])


def _throttled_requests(row: Row) -> str:
    sides = (row["throttled_requests_by_replay"], row["throttled_requests"])
    return " / ".join(or_dash(requests, person_count) for requests in sides)


def _colour(row: Row) -> Colour | None:
    if (row["quota_used_percent"] or 0.0) > 100.0:
        return Colour.RED
    return None if row["is_certain"] else Colour.YELLOW


QUESTION = Question(
    command="decisions",
    table=DECISIONS,
    find=by_sql(
        _SQL,
        time=("second", "time"),
        period=("decisions.second", "decisions.second"),
        order="decisions.second desc, cluster_id, broker_id, quota_type, bucket_user, bucket_client_id, bucket_tags, "
        "late",
        throttled=_THROTTLED,
        noun="decision",
        shown=_shown,
        has_source=False,
    ),
    colour=_colour,
)
add_commands = QUESTION.add_to
