"""`kquota rightsize`: the limit that fits the demand of each bucket, with its error."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kquota_spark.cli.answers import newest_decision_ms, of_one_cluster, require_since
from kquota_spark.cli.filters import Filter
from kquota_spark.cli.options import (
    TIME_FORMS,
    PeriodOptions,
    add_client_option,
    bucket_text,
    counted_text,
)
from kquota_spark.cli.question import Asked, Flag, Found, Question, column
from kquota_spark.cli.rightsize.sentences import NEAR_TITLE, days_text, left_out_day, reason_of
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.guard_settings import GuardSettings
from kquota_spark.formats.text.person_units import iso_time, or_dash, person_percent, rate_text
from kquota_spark.model.rightsize.demand import WINDOW_MS
from kquota_spark.model.rightsize.target import TARGET_PERCENT
from kquota_spark.rightsize.recommended import (
    Recommendation,
    default_candidates,
    recommendations,
)
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
_TYPES = ("produce", "fetch")
_COLUMNS = (
    "cluster_id", "quota_type", "bucket_user", "bucket_client_id", "rule", "worst_broker_id", "limit_per_s",
    "target_per_s", "is_at_least", "demand_per_s", "lower_per_s", "upper_per_s", "uncapped_per_s", "hidden_percent",
    "above_percent", "above_least_percent", "above_most_percent", "growth_percent_per_day", "days_to_80",
    "days_to_80_low", "days_to_80_high", "history_days", "left_out_day", "left_out_ratio", "reason",
)  # fmt: skip
_OF_DEFAULTS = (
    "cluster_id", "quota_type", "entity", "value_per_s", "is_present", "coverage_percent", "covered", "buckets",
    "collateral", "overrides_saved", "overrides",
)  # fmt: skip


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="NAME", help="only the buckets of this user")
    add_client_option(parser, "only those of this client id")
    _add_type(parser)


def _add_type(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--type", choices=_TYPES, help="only this quota type")


def _find(asked: Asked) -> Found:
    """One row per bucket, by its broker with the highest target; the limit that is most too low first.

    Raises:
        UserError: the table is empty, or the period is.
    """
    settings, to_ms, found = _recommended(asked)
    chosen = [one for one in found if _is_wanted(one, asked.wanted)]
    rows = [_row(settings.cluster_id, one, to_ms) for one in sorted(chosen, key=_place)]
    short = sum(one.size is None for one in chosen)
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
    settings, to_ms, found = _recommended(asked)
    of_type = [one for one in found if asked.wanted.type in (None, one.place.quota_type)]
    rows = [
        {
            "cluster_id": settings.cluster_id,
            "quota_type": one.quota_type,
            "entity": str(one.entity),
            "value_per_s": one.effect.value,
            "is_present": one.effect.value == one.present_per_s,
            "coverage_percent": one.effect.coverage_percent,
            "covered": one.effect.covered,
            "buckets": one.effect.buckets,
            "collateral": one.effect.collateral,
            "overrides_saved": one.effect.overrides_saved,
            "overrides": one.effect.overrides,
        }
        for one in default_candidates(of_type)
    ]
    return Found(
        _OF_DEFAULTS,
        rows,
        _DEFAULTS_SHOWN,
        f"by the targets of {sum(one.size is not None for one in of_type):,} buckets until {utc_text(to_ms)}",
        when_empty=f"no bucket has two weeks of history before {utc_text(to_ms)}",
        envelope={"to": iso_time(to_ms)},
    )


def _recommended(asked: Asked) -> tuple[Settings, int, list[Recommendation]]:
    end_ms, until = newest_decision_ms(asked.tables) + 1_000, asked.wanted.until
    to_ms = (end_ms if until is None else min(until.time_ms, end_ms)) // WINDOW_MS * WINDOW_MS
    since_ms = None if asked.wanted.since is None else asked.wanted.since.time_ms
    if since_ms is not None:
        require_since(since_ms, to_ms)
    settings = of_one_cluster(asked, since_ms or 0)
    guards = _guards(settings)
    return settings, to_ms, recommendations(asked.tables, settings.cluster_id, to_ms, guards, since_ms)


def _guards(settings: Settings) -> GuardSettings | None:
    """The guards of the policy file, which may have bounds; None without such a file."""
    from kquota_spark.enforcement.policies import load_policies

    path = Path(settings.enforcement.policy_file)
    return load_policies(path).guards if path.is_file() else None


def _is_wanted(one: Recommendation, wanted: Filter) -> bool:
    place = one.place
    names = ((wanted.user, place.user), (wanted.client, place.client_id), (wanted.type, place.quota_type))
    return all(asked in (None, name) for asked, name in names)


def _row(cluster_id: str, one: Recommendation, to_ms: int) -> dict[str, Any]:
    size, forecast = one.size, one.forecast
    is_known = one.trend is not None and one.trend.is_known
    return {
        "cluster_id": cluster_id,
        "quota_type": one.place.quota_type,
        "bucket_user": one.place.user,
        "bucket_client_id": one.place.client_id,
        "bucket_tags": None,
        "rule": one.rule,
        "worst_broker_id": one.place.broker_id,
        "limit_per_s": one.limit_per_s,
        "target_per_s": size and size.target,
        "is_at_least": size and size.is_at_least,
        "demand_per_s": size and size.quantile,
        "lower_per_s": size and size.lower,
        "upper_per_s": size and size.upper,
        "uncapped_per_s": size and size.uncapped,
        "hidden_percent": size and size.hidden_percent,
        "above_percent": size and size.above_percent,
        "above_least_percent": size and size.above_least_percent,
        "above_most_percent": size and size.above_most_percent,
        "growth_percent_per_day": 100 * one.trend.slope if one.trend is not None and is_known else None,
        "days_to_80": forecast and forecast.days,
        "days_to_80_low": forecast and forecast.low,
        "days_to_80_high": forecast and forecast.high,
        "history_days": round(one.history_days, 2),
        "left_out_day": None if size is None or size.left_out is None else left_out_day(size.left_out, to_ms),
        "left_out_ratio": size and size.odd_ratio,
        "reason": reason_of(one, to_ms),
        "forecast": forecast,
    }


def _demand(row: Row) -> str:
    """The bounds of the demand, `375 to 432 kB/s`; `≥ 95.4 kB/s` where throttles hide the upper one."""
    if row["demand_per_s"] is None:
        return "-"
    kind, is_least = row["quota_type"], row["is_at_least"]
    lower = rate_text(kind, row["demand_per_s"] if is_least else row["lower_per_s"])
    if is_least:
        return f"≥ {lower}"
    upper = rate_text(kind, row["upper_per_s"])
    number, _, unit = lower.rpartition(" ")
    return f"{number if upper.endswith(f' {unit}') else lower} to {upper}"


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
        _demand,
        note=f"demand: bounds of the rate that {TARGET_PERCENT:g} % of windows do not exceed",
    ),
    Shown("target", _target),
    Shown(NEAR_TITLE, lambda row: days_text(row["forecast"]), rank=1),
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
    options=_add_type,
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
    options=_options,
    period=_PERIOD,
    colour=_colour,
    has_agreement=False,
)
add_commands = QUESTION.add_to
