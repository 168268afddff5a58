"""`kquota rightsize`: the limit that fits the demand of each bucket, with its error."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import NamedTuple

from kquota_spark.cli.answers import attributes, newest_decision_ms, of_one_cluster, require_since
from kquota_spark.cli.options import TIME_FORMS, PeriodOptions, bucket_text, counted_text, only
from kquota_spark.cli.own_options import option
from kquota_spark.cli.question import Asked, Flag, Found, Question, column
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.formats.text.person_units import iso_time, or_dash, person_percent, rate_text
from kquota_spark.model.rightsize.demand import WINDOW_MS
from kquota_spark.model.rightsize.target import TARGET_PERCENT
from kquota_spark.rightsize.buckets import BucketFilter
from kquota_spark.rightsize.kept_days import default_end_ms
from kquota_spark.rightsize.recommended import (
    DefaultCandidate,
    Recommendation,
    default_candidates,
    recommendations,
)
from kquota_spark.rightsize.rows import SizeRow, row_of
from kquota_spark.rightsize.sentences import NEAR_TITLE, days_text, demand_text
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.reading import utc_text

COMMANDS = {
    "rightsize": (
        "answers",
        "the limit that fits the demand of each bucket, with its error; how good a default is",
        "kquota rightsize --user alice",
        "kquota rightsize --defaults",
    ),
}
_COLUMNS = ("cluster_id", *(each.name for each in fields(SizeRow)))
_OF_DEFAULTS = (
    "cluster_id", "quota_type", "entity", "value_per_s", "is_present", "coverage_percent", "covered", "buckets",
    "collateral", "overrides_saved", "overrides",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Own:
    """Options of this command alone."""

    quota_type: str | None = option("--type", "only this quota type", choices=("produce", "fetch"))


class _Sized(NamedTuple):
    cluster_id: str
    to_ms: int
    """End of the history, epoch ms."""
    found: list[Recommendation]


def _find(asked: Asked) -> Found:
    """One row per bucket, by its broker with the highest target; the limit that is most too low first.

    Raises:
        UserError: the table is empty, or the period is.
    """
    cluster_id, to_ms, found = _sized(asked)
    rows = [
        {"cluster_id": cluster_id, "bucket_tags": None, **asdict(row), "of_people": row}
        for row in (row_of(one, to_ms) for one in sorted(found, key=_place))
    ]
    short = sum(one.size is None for one in found)
    footer = (
        f"{counted_text(len(rows), 'bucket', asked.limit)}{f', {short:,} with too short a history' if short else ''}; "
        f"windows of 10 s until {utc_text(to_ms)}"
    )
    return Found(
        _COLUMNS,
        rows,
        _SHOWN,
        footer if rows else "",
        when_empty=f"no bucket has traffic before {utc_text(to_ms)}",
        envelope={"to": iso_time(to_ms)},
    )


def _place(one: Recommendation) -> tuple[bool, float]:
    """The order of rows: the limit that is most too low first, buckets without a number last."""
    if one.size is None or one.limit_per_s is None:
        return one.size is None, 0.0
    return False, -one.size.target / one.limit_per_s


def _find_defaults(asked: Asked) -> Found:
    """One row per value of a default.

    Raises:
        UserError: the table is empty, or the period is.
    """
    cluster_id, to_ms, found = _sized(asked)
    return Found(
        _OF_DEFAULTS,
        [_default_row(cluster_id, one) for one in default_candidates(found)],
        _DEFAULTS_SHOWN,
        f"by the targets of {sum(one.size is not None for one in found):,} buckets until {utc_text(to_ms)}",
        when_empty=f"no bucket has two weeks of history before {utc_text(to_ms)}",
        envelope={"to": iso_time(to_ms)},
    )


def _default_row(cluster_id: str, one: DefaultCandidate) -> Row:
    effect = one.effect
    return {
        "cluster_id": cluster_id,
        "quota_type": one.quota_type,
        "entity": str(one.entity),
        "value_per_s": effect.value,
        "is_present": effect.value == one.present_per_s,
        **attributes(effect, _OF_DEFAULTS),
    }


def _sized(asked: Asked) -> _Sized:
    """The right sizes of the buckets that are asked for."""
    from kquota_spark.enforcement.policies import guards_of

    end_ms, until = newest_decision_ms(asked.tables) + 1_000, asked.wanted.until
    since_ms = asked.wanted.newer_than_ms
    if until is None and since_ms is None:
        to_ms = default_end_ms(asked.tables, end_ms)
    else:
        to_ms = (end_ms if until is None else min(until.time_ms, end_ms)) // WINDOW_MS * WINDOW_MS
    if since_ms is not None:
        require_since(since_ms, to_ms)
    settings = of_one_cluster(asked, since_ms or 0)
    buckets = BucketFilter(asked.own.quota_type, asked.wanted.user, asked.wanted.client)
    chosen = None if buckets == BucketFilter() else buckets
    found = recommendations(
        asked.tables, settings.cluster_id, to_ms, guards_of(settings), since_ms, chosen,
        quotas_ms=end_ms if until is None else None,
    )  # fmt: skip
    return _Sized(settings.cluster_id, to_ms, found)


def _target(row: Row) -> str:
    return or_dash(row["target_per_s"], lambda rate: rate_text(row["quota_type"], rate))


def _colour(row: Row) -> Colour | None:
    if row["target_per_s"] is None:
        return Colour.FAINT
    return (
        Colour.YELLOW if row["limit_per_s"] is not None and row["limit_per_s"] < row["target_per_s"] else None
    )


_SHOWN = (
    Shown("bucket", bucket_text, is_text=True, keep=16),
    column("quota_type"),
    column("limit_per_s"),
    Shown(
        "demand",
        lambda row: demand_text(row["of_people"]),
        note=f"demand: bounds of the rate that {TARGET_PERCENT:g} % of windows do not exceed",
    ),
    Shown("target", _target),
    Shown(NEAR_TITLE, lambda row: days_text(row["of_people"].forecast), rank=1),
    Shown("reason", lambda row: row["reason"], is_text=True, keep=24),
)
_DEFAULTS_SHOWN = (
    Shown("default", lambda row: row["entity"], is_text=True, keep=16),
    column("quota_type"),
    Shown("value", lambda row: rate_text(row["quota_type"], row["value_per_s"])),
    Shown("", lambda row: "in force" if row["is_present"] else "", is_text=True),
    Shown("covers", lambda row: f"{row['covered']:,} of {row['buckets']:,}"),
    Shown("covers %", lambda row: person_percent(row["coverage_percent"]), rank=2),
    Shown("newly throttled", lambda row: f"{row['collateral']:,}"),
    Shown("overrides saved", lambda row: f"{row['overrides_saved']:,} of {row['overrides']:,}"),
)
_PERIOD = PeriodOptions(f"history from then on, four weeks at most: {TIME_FORMS}", "the sizes at that time")
_DEFAULTS = Question(
    command="rightsize --defaults",
    table=DECISIONS,
    find=_find_defaults,
    options=None,
    declared=_Own,
    period=_PERIOD,
    has_agreement=False,
)
QUESTION = Question(
    command="rightsize",
    table=DECISIONS,
    find=_find,
    modes=(
        (
            Flag("--defaults", "the effect of values of a default: coverage, collateral, overrides saved"),
            _DEFAULTS,
        ),
    ),
    options=only(user="only the buckets of this user", client_id="only those of this client id"),
    declared=_Own,
    period=_PERIOD,
    colour=_colour,
    has_agreement=False,
)
add_commands = QUESTION.add_to
