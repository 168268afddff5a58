"""On real logs, the shadow of the stream equals the open loop of `kquota whatif`, second by second."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import pytest

from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from tests.support.pipeline.shadowed import (
    Job,
    Values,
    book_of,
    known,
    open_loop,
    run_batches,
    usage_of,
    verdicts_of,
)
from tests.support.places import DATA

CAPTURES = ("kraft39", "zk39-levels", "zk39-plain", "kraft41")
PRODUCE, FETCH, REQUEST = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
)


@cache
def _usage(capture: str) -> list[dict[str, Any]]:
    return usage_of(DATA / capture, DATA / capture / "quotas.yaml")


def _book(capture: str) -> RuleBook:
    return RuleBook(rule_periods(read_quota_file(DATA / capture / "quotas.yaml")))


def _first(capture: str) -> Values:
    """The quotas of a capture before its first edit of a quota that was set."""
    book = _book(capture)
    found = {entity: next((rule.values for rule in book.of(entity) if rule.values), {}) for entity in book}
    return {entity: values for entity, values in found.items() if values}


def _scaled(values: Values, factor: float) -> Values:
    return {
        entity: {key: max(1.0, float(int(value * factor))) for key, value in found.items()}
        for entity, found in values.items()
    }


def _without_pairs(values: Values) -> Values:
    """Only the quotas of users and of client ids: the clients of pairs count in other buckets."""
    return {entity: found for entity, found in values.items() if None in (entity.user, entity.client_id)}


SHADOWS: dict[str, Callable[[Values], Values]] = {
    "half": lambda values: _scaled(values, 0.5),
    "double": lambda values: _scaled(values, 2),
    "no pairs": _without_pairs,
    "none": lambda _: {},
    "one per client": lambda _: {
        Entity(DEFAULT, DEFAULT): {PRODUCE: 50_000.0, FETCH: 90_000.0, REQUEST: 0.5}
    },
    "one per user": lambda _: {Entity(DEFAULT, None): {PRODUCE: 70_000.0, FETCH: 200_000.0}},
}
LEAST = {"half": 100, "double": 5, "no pairs": 20, "none": -1, "one per client": 50, "one per user": 20}
"""Seconds with a throttle that each has at least, on every capture."""


PAIRS = [
    *product(("kraft39", "zk39-levels"), SHADOWS),
    *product(("zk39-plain", "kraft41"), ("half", "one per client")),
]
"""The quotas of kraft39 are edited meanwhile, and zk39-levels has two brokers."""


@pytest.mark.parametrize(("capture", "shadow"), PAIRS)
def test_the_shadow_equals_the_open_loop_of_whatif_second_by_second(capture: str, shadow: str) -> None:
    rows, enforced, values = _usage(capture), _book(capture), SHADOWS[shadow](_first(capture))
    job = run_batches(rows, known(enforced, values), 5)
    expected = open_loop(rows, enforced, values)
    assert verdicts_of(job) == expected
    assert len(expected) > LEAST[shadow]


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_shadow_of_the_enforced_file_has_no_row(capture: str) -> None:
    """Also where it throttles, as it does here in hundreds of seconds."""
    values = _first(capture)
    job = run_batches(_usage(capture), known(book_of(values), values), 5)
    assert job.shadow == []
    assert sum(row["decision"].throttled_requests > 0 for row in job.decisions) > 50


@pytest.mark.parametrize("shadow", ["half", "no pairs"])
def test_the_rows_are_the_same_whatever_the_batches_and_the_shards(shadow: str) -> None:
    """The quotas of this capture are edited meanwhile: clients move from one bucket to another."""
    rows, enforced = _usage("kraft39"), _book("kraft39")
    knows = known(enforced, SHADOWS[shadow](_first("kraft39")))
    found = [
        sorted(run_batches(rows, knows, seconds, Job(shards)).shadow, key=repr)
        for seconds, shards in ((1, 64), (7, 5), (1_000, 1))
    ]
    assert len(found[0]) > 100
    assert found[0] == found[1] == found[2]


def test_decisions_do_not_depend_on_the_shadow() -> None:
    rows, enforced = _usage("kraft39"), _book("kraft39")
    without, beside = (
        run_batches(rows, known(enforced, shadow), 5).decisions
        for shadow in (None, SHADOWS["one per client"](_first("kraft39")))
    )
    assert sorted(without, key=repr) == sorted(beside, key=repr)
