"""`kquota why`: the causes of a bucket's delay, each with its part by replay, and who slowed whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kquota_spark.cli.filters import add_period, bucket_conditions
from kquota_spark.cli.options import (
    TIME_FORMS,
    PeriodOptions,
    add_bucket_options,
    add_form_option,
    limited,
    whole_number,
)
from kquota_spark.cli.own_options import option, switch
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.errors import UserError
from kquota_spark.process.notices import spaced_notice
from kquota_spark.schema.harm import EPISODE_DELAY_MS, EPISODE_END
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.schema.tables import VIOLATIONS
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.cli.why.page import Answer
    from kquota_spark.reports.why.answers import Reasons

COMMANDS = {
    "why": (
        "answers",
        "why a bucket was throttled: each cause with its part of the delay, and who slowed whom",
        "kquota why --user bob",
        "kquota why --client-id legacy --whole --since 2h",
    ),
}

_PROGRESS_EVERY_S = 2.0
_IS_COVERED = "quota_type in ('produce', 'fetch', 'request') and bucket_tags is null"
_EPISODES = f"""
select cluster_id, episode_id, quota_type, bucket_user, bucket_client_id, epoch_ms(start_time) as from_ms,
       epoch_ms({EPISODE_END}) as to_ms
from violations {{where}} order by {EPISODE_DELAY_MS} desc nulls last, start_time desc, episode_id
"""  # noqa: S608 - names of ours
_WHOLE = f"""
select cluster_id, null as episode_id, quota_type, bucket_user, bucket_client_id,
       epoch_ms(min(start_time)) as from_ms, epoch_ms(max({EPISODE_END})) as to_ms
from violations {{where}} group by all order by sum({EPISODE_DELAY_MS}) desc nulls last, 3, 4, 5
"""  # noqa: S608 - names of ours
_COLUMNS = (
    "cluster_id", "episode_id", "quota_type", "bucket_user", "bucket_client_id", "from", "to", "limit_per_s",
    "delay_ms", "delay_by_replay_ms", "rank", "cause", "is_named", "share_percent", "share_ms", "delay_without_ms",
    "confidence", "sentence", "cure", "evidence",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Own:
    """The options that no other command has."""

    episode: str | None = option(
        "--episode", "this violation (episode_id of kquota violations --output json)", metavar="ID"
    )
    is_whole: bool = switch("--whole", "all violations of a bucket as one period, instead of one of them")
    top: int = option(
        "--top",
        "explain N of them, most total delay first (default 1)",
        default=1,
        type=whole_number,
        metavar="N",
    )


def _find(asked: Asked) -> Found:
    """The causes of the violations, or of the buckets, with the most total delay.

    Raises:
        UserError: no violation matches, or the tables have no requests of it.
    """
    from kquota_spark.cli.why.page import print_answer_of

    chosen, has_more = _chosen(asked)
    answers = list(_answers(asked, chosen))
    if chosen and not answers:
        raise UserError(
            f"the tables have no requests that explain this violation from {utc_text(chosen[0]['from_ms'])}: a quota "
            "callback decides, or usage of that time is gone"
        )
    rows = [row for answer in answers for row in _rows(answer)]
    more = "there are more: --top 3 explains three" if has_more else ""

    def page(out: Any) -> None:
        for number, answer in enumerate(answers):
            if number:
                out.line()
            print_answer_of(answer, out)

    return Found(
        _COLUMNS,
        rows,
        footer=more,
        page=page if answers else None,
        envelope={"buckets": [_bucket(answer) for answer in answers]},
        times=frozenset(("from", "to")),
        is_limited=True,
        when_empty="no violation matches: nobody was throttled, or the time has none",
    )


def _chosen(asked: Asked) -> tuple[list[dict[str, Any]], bool]:
    """The violations or buckets to explain, and whether there are more."""
    where = bucket_conditions(asked.wanted)
    where.add(f"{_IS_COVERED} and {FROM_LOG}")
    add_period(where, asked.wanted, EPISODE_END, "violations.start_time")
    if asked.own.episode is not None:
        where.add("episode_id = ?", asked.own.episode)
    sql = (_WHOLE if asked.own.is_whole else _EPISODES).format(where=where.sql)
    # Each takes many replays.
    found, has_more = limited(asked.tables, sql, where.values, max(asked.own.top, 1))
    rows = found.dicts()
    if asked.own.episode is not None and not rows:
        raise UserError(f"--episode {asked.own.episode}: no such violation of a client")
    if asked.own.is_whole:
        for row in rows:
            wanted = asked.wanted
            row["from_ms"] = wanted.since.time_ms if wanted.since is not None else row["from_ms"]
            row["to_ms"] = wanted.until.time_ms if wanted.until is not None else row["to_ms"]
    return rows, has_more


def _answers(asked: Asked, chosen: Sequence[dict[str, Any]]) -> Iterator[Answer]:
    from kquota_spark.cli.why.page import Answer
    from kquota_spark.reports.scope.shared_rows import BucketName
    from kquota_spark.reports.slow.beside import slow_beside
    from kquota_spark.reports.why.reasons import ALL, UseOfKept, reasons_of_clusters
    from kquota_spark.reports.why.recorded import Wanted

    wanted = [
        (
            row["cluster_id"],
            Wanted(
                BucketName(row["quota_type"], row["bucket_user"], row["bucket_client_id"]),
                row["from_ms"],
                row["to_ms"],
            ),
        )
        for row in chosen
    ]
    found, _ = reasons_of_clusters(
        asked.settings, wanted, ALL._replace(reads_lines=True, kept=UseOfKept.LAST)
    )
    progress = spaced_notice(_PROGRESS_EVERY_S)
    for row, one in zip(chosen, wanted, strict=True):
        if one in found:
            period = row["from_ms"], row["to_ms"]
            slow = slow_beside(asked.settings, one[1].bucket, *period, progress)
            yield Answer(row["cluster_id"], row["episode_id"], found[one], slow)


def _rows(answer: Answer) -> Iterator[dict[str, Any]]:
    """One row per cause, and one for the rest: their parts add up to the delay by replay."""
    from kquota_spark.reports.why.rows import cause_rows

    head = {"cluster_id": answer.cluster_id, "episode_id": answer.episode_id, **_head(answer.reasons)}
    for row in cause_rows(answer.reasons):
        yield head | row


def _head(found: Reasons) -> dict[str, Any]:
    return {
        "quota_type": found.bucket.quota_type,
        "bucket_user": found.bucket.user,
        "bucket_client_id": found.bucket.client_id,
        "from": found.from_ms,
        "to": found.to_ms,
        "limit_per_s": found.limit_per_s,
        "delay_ms": found.delay_ms,
        "delay_by_replay_ms": found.attribution.delay_ms,
    }


def _bucket(answer: Answer) -> dict[str, Any]:
    """Who slowed whom in one bucket, and how fairly it was shared, for JSON."""
    from kquota_spark.formats.text.person_units import iso_time

    found, sharing = answer.reasons, answer.reasons.sharing
    head = _head(found) | {"from": iso_time(found.from_ms), "to": iso_time(found.to_ms)}
    clients = [] if sharing is None else sharing.clients
    return head | {
        "clients": [
            {
                "user": each.client[0],
                "client_id": each.client[1],
                "caused_ms": each.caused_ms,
                "suffered_ms": each.suffered_ms,
                "caused_to_others_ms": each.of_others_ms,
                "standard_error_ms": each.standard_error_ms,
            }
            for each in clients
        ],
        "clients_together": 0 if sharing is None else sharing.others,
        "drawn_orders": 0 if sharing is None else sharing.orders,
        "slow_brokers": [
            {
                "broker_id": each.broker_id,
                "other_clients": len(each.victims),
                "waited_usual_ms": round(each.before_ms, 3),
                "waited_slow_ms": round(each.during_ms, 3),
                "suspect_user": each.suspect and each.suspect.client[0],
                "suspect_client_id": each.suspect and each.suspect.client[1],
            }
            for each in answer.slow
        ],
        "fairness": [each._asdict() | {"from_ms": iso_time(each.from_ms)} for each in found.fairness],
    }


QUESTION = Question(
    command="why",
    table=VIOLATIONS,
    find=_find,
    options=add_bucket_options,
    declared=_Own,
    period=PeriodOptions(
        f"only violations that last until then or longer: {TIME_FORMS}",
        "only violations that begin before then",
    ),
    has_agreement=False,
    form=add_form_option,
)
add_commands = QUESTION.add_to
