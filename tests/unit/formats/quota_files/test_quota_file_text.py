"""What is written as a quota file is read back to the same quotas at every time."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.formats.quota_files.quota_file import IpLimit, QuotaFile, read_quotas
from kquota_spark.formats.quota_files.quota_file_text import quota_file_text
from kquota_spark.model.quotas.entities import DEFAULT, Default, Entity, IpEntity
from kquota_spark.model.quotas.ip_quotas import by_address
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, RulePeriod, rule_periods

_SETTINGS = settings(deadline=None, print_blob=True)
PRODUCE, PERCENT = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE


def read_back(text: str) -> QuotaFile:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "quotas.yaml"
        path.write_text(text, encoding="utf-8")
        return read_quotas(path)


def test_a_file_has_an_entry_for_each_value_as_long_as_it_lasts() -> None:
    bob, pair = Entity("bob"), Entity(DEFAULT, "a: é")
    rules = [
        RulePeriod(bob, {PRODUCE: 250_000.0}, 0, 50, None),
        RulePeriod(bob, {PRODUCE: 250_000.0, PERCENT: 12.5}, 50, 70, 50),
        RulePeriod(bob, {PRODUCE: 1e15}, 70, None, 70),
        RulePeriod(pair, {}, 0, 10, None),
        RulePeriod(pair, {PERCENT: 1e-7}, 10, 20, 10),
        RulePeriod(pair, {}, 20, 60, 20),
        RulePeriod(pair, {PERCENT: 1e-7}, 60, None, 60),
    ]
    limits = [IpLimit(IpEntity("::1"), 20, 10, None), IpLimit(IpEntity(DEFAULT), 0, 0, 10)]
    assert (
        quota_file_text(rules, limits)
        == """\
- {ip: <default>, type: connection_creation_rate, value: 0, from_ms: null, to_ms: 10}
- {user: bob, client_id: null, type: producer_byte_rate, value: 250000, from_ms: null, to_ms: 70}
- {ip: '::1', type: connection_creation_rate, value: 20, from_ms: 10, to_ms: null}
- {user: <default>, client_id: "a: \\xE9", type: request_percentage, value: 1.0e-07, from_ms: 10, to_ms: 20}
- {user: bob, client_id: null, type: request_percentage, value: 12.5, from_ms: 50, to_ms: 70}
- {user: <default>, client_id: "a: \\xE9", type: request_percentage, value: 1.0e-07, from_ms: 60, to_ms: null}
- {user: bob, client_id: null, type: producer_byte_rate, value: 1000000000000000, from_ms: 70, to_ms: null}
"""
    )


def test_no_rules_are_an_empty_list() -> None:
    assert quota_file_text([]) == "[]\n"
    assert read_back("[]\n") == QuotaFile([], [])


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            RulePeriod(Entity("<default>"), {PRODUCE: 1.0}, 0, None, None),
            "users/%3Cdefault%3E producer_byte_rate: a quota file has no way to write the name '<default>'",
        ),
        (
            RulePeriod(Entity("a", ""), {PRODUCE: 1.0}, 0, None, None),
            "users/a/clients/ producer_byte_rate: a quota file has no way to write the name ''",
        ),
        (
            RulePeriod(Entity("a"), {PRODUCE: -1.0}, 0, None, None),
            "users/a producer_byte_rate: a quota file cannot hold the value -1.0",
        ),
        (
            RulePeriod(Entity("a"), {PRODUCE: 1.5}, 0, None, None),
            "users/a producer_byte_rate: a quota file cannot hold the value 1.5",
        ),
        (
            RulePeriod(Entity("a"), {PRODUCE: 2.0**64}, 0, None, None),
            "users/a producer_byte_rate: a quota file cannot hold the value 1.8446744073709552e+19",
        ),
        (
            RulePeriod(Entity("a"), {PERCENT: math.inf}, 0, None, None),
            "users/a request_percentage: a quota file cannot hold the value inf",
        ),
        (
            RulePeriod(Entity("a"), {PERCENT: math.nan}, 0, None, None),
            "users/a request_percentage: a quota file cannot hold the value nan",
        ),
    ],
)
def test_what_a_file_cannot_hold_is_refused(rule: RulePeriod, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        quota_file_text([rule])
    assert str(raised.value) == problem


NAMES: st.SearchStrategy[str | Default] = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
        lambda name: name != "<default>"
    ),
    st.sampled_from(
        ["null", "7", "1e3", "a: b", "- a", "#", "~", "yes", "\x85", "\ufeff", "😀", "a\r\nb", DEFAULT]
    ),
)
FEW = st.sampled_from([Entity("a"), Entity("a", DEFAULT), Entity(None, "c")])
ENTITIES = st.one_of(
    FEW, st.builds(Entity, NAMES), st.builds(Entity, st.none(), NAMES), st.builds(Entity, NAMES, NAMES)
)
AMOUNTS = st.integers(0, 2**53).map(float)
VALUES = {PRODUCE: AMOUNTS, PERCENT: st.floats(0, 1e300)}
TIMES_MS = st.integers(0, 12)
EDITS = st.sampled_from([PRODUCE, PERCENT]).flatmap(
    lambda key: st.tuples(ENTITIES, st.just(key), st.one_of(st.none(), VALUES[key], st.just(5.0)), TIMES_MS)
)


@_SETTINGS
@given(st.lists(EDITS, max_size=12))
def test_edits_written_and_read_back_replay_like_a_map(
    edits: list[tuple[Entity, QuotaKey, float | None, int]],
) -> None:
    edits.sort(key=lambda edit: edit[3])
    changes = [QuotaChange(*edit[:3], None, edit[3], version) for version, edit in enumerate(edits)]
    book = RuleBook(rule_periods(read_back(quota_file_text(rule_periods(changes))).changes))
    for time_ms in range(14):
        image: dict[tuple[Entity, QuotaKey], float | None] = {}
        for entity, key, value, at_ms in edits:
            if at_ms <= time_ms:
                image[entity, key] = value
        for (entity, key), value in image.items():
            rule = book.at(entity, time_ms)
            assert (rule.values.get(key) if rule else None) == value


IP_LIMITS = st.lists(
    st.builds(
        lambda entity, limit, from_ms, length_ms: IpLimit(
            entity, limit, from_ms, None if length_ms is None else from_ms + length_ms
        ),
        st.one_of(st.ip_addresses().map(lambda ip: IpEntity(str(ip))), st.just(IpEntity(DEFAULT))),
        st.integers(0, 2**31 - 1),
        TIMES_MS,
        st.one_of(st.none(), st.integers(1, 9)),
    ),
    max_size=5,
    unique_by=lambda limit: by_address(limit.entity),
)


@_SETTINGS
@given(IP_LIMITS)
def test_limits_of_ips_round_trip(limits: list[IpLimit]) -> None:
    read = read_back(quota_file_text([], limits)).ip_limits
    assert read == sorted(limits, key=lambda limit: (limit.from_ms, str(limit.entity)))
