"""Traffic judged under other quotas: the same quotas change nothing, and others change what arithmetic says."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.chosen.quota_source import added_quotas
from kquota_spark.cli.main import main
from kquota_spark.config.governor import rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.formats.quota_files.quota_file_text import quota_file_text
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.govern.traffic import Traffic
from kquota_spark.model.measure.muted_seconds import Span
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod, with_values
from kquota_spark.quotas.sources import from_file, from_tables
from kquota_spark.reports.clients.judged_again import judged_again
from kquota_spark.reports.clients.judged_groups import Side
from kquota_spark.reports.clients.stored_usage import stored_gaps, stored_rings, stored_usage
from kquota_spark.reports.clients.what_if import WhatIf, what_if
from kquota_spark.schema.gap_tables import MID_STREAM
from kquota_spark.store.reading import query
from tests.support.logs.captures import Capture
from tests.support.logs.replayed_captures import run
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.table_rows import DAY, T0_MS, second, write_table

FOREVER_MS = 4_000_000_000_000
COMPARED = (
    "level", "rule", "rule_version", "limit_per_s", "rate_per_s", "quota_used_percent", "amount", "requests",
    "throttle_ms", "observed_throttle_ms", "throttled_requests", "total_throttle_ms", "is_certain",
)  # fmt: skip


@pytest.fixture(scope="module")
def kraft(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Tables of a real run on all eight levels."""
    return write_capture(tmp_path_factory.mktemp("kraft39"), Capture("kraft39", RateConfig()))


def governor(*values: tuple[Entity, QuotaKey, float]) -> RuleGovernor:
    return RuleGovernor(
        RuleBook(RulePeriod(entity, {key: value}, 0, None, 1) for entity, key, value in values)
    )


def everything(settings: Settings, before: RuleGovernor, after: RuleGovernor) -> WhatIf:
    return what_if(settings, before, after, 0, FOREVER_MS)


def test_the_same_quotas_give_the_decisions_of_the_tables(kraft: Settings) -> None:
    rings = stored_rings(kraft)
    found = judged_again(
        stored_usage(kraft, 0, FOREVER_MS),
        RuleGovernor(from_tables(kraft).book),
        rings,
        rate_config(kraft),
        stored_gaps(kraft, rings, rate_config(kraft)),
    )
    ours = {
        (broker_id, quota_type.value, bucket.user, bucket.client_id, decision.second_ms): tuple(
            getattr(decision, name) for name in COMPARED
        )
        for (broker_id, quota_type, bucket), judged in found.items()
        for decision in judged.decisions
    }
    names = ", ".join(COMPARED)
    types = ", ".join(f"'{each.value}'" for each in BANDWIDTH)
    rows = query(
        kraft,
        ["decisions"],
        f"select broker_id, quota_type, bucket_user, bucket_client_id, epoch_ms(second), {names} from decisions "
        f"where quota_type in ({types})",
    ).rows
    assert len(rows) > 500
    assert {row[:5]: row[5:] for row in rows} == ours


def test_an_identical_quota_file_changes_nothing(kraft: Settings, tmp_path: Path) -> None:
    book = from_tables(kraft).book
    path = tmp_path / "quotas.yaml"
    path.write_text(quota_file_text(period for entity in book for period in book.of(entity)), "utf-8")
    found = everything(kraft, RuleGovernor(book), RuleGovernor(from_file(path).book))
    assert found.requests > 8_000
    assert sum(each.throttled_ms[0] for each in found.differences) > 100_000
    assert [each for each in found.differences if each.before != each.after] == []


def test_halved_limits_throttle_no_bucket_less_and_doubled_ones_none_more(kraft: Settings) -> None:
    book = from_tables(kraft).book
    before = RuleGovernor(book)

    def times(factor: float) -> RuleGovernor:
        return RuleGovernor(
            RuleBook(
                dataclasses.replace(each, values={key: value * factor for key, value in each.values.items()})
                for entity in book
                for each in book.of(entity)
            )
        )

    halved = everything(kraft, before, times(0.5)).differences
    doubled = everything(kraft, before, times(2)).differences
    produces = [each for each in halved if each.quota_type is QuotaType.PRODUCE]
    assert len(produces) > 5 and min(each.more_ms for each in produces) >= 0
    assert max(each.more_ms for each in produces) > 0
    assert max(each.more_ms for each in doubled) == 0 > min(each.more_ms for each in doubled)


def point(time_ms: int, amount: int, throttle_ms: int = 0, kind: PointKind = PointKind.PRODUCE) -> Point:
    return Point(time_ms, time_ms + 1, 1, time_ms % 1_000_000, amount, throttle_ms, int(kind))


def written(root: Path, *seconds: tuple[QuotaType, list[Point]]) -> Settings:
    """Usage of alice's etl, a row a second; the requests of each lie in it."""
    rows: list[dict[str, Any]] = [
        {
            "cluster_id": "test", "event_date": DAY, "broker_id": 1, "quota_type": quota_type.value,
            "principal_type": "User", "user": "alice", "client_id": "etl", "tile": 0, "source": "log",
            "second": datetime.fromtimestamp(points[0].record_time_ms // 1_000, UTC),
            "amount": sum(each.amount for each in points), "requests": len(points),
            "points": [each._asdict() for each in points],
        }
        for quota_type, points in seconds
    ]  # fmt: skip
    write_table(root, "usage", *rows)
    write_table(root, "decisions")
    return Settings(cluster_id="test", tables=str(root))


ALICE = Entity("alice", None)
PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE


def muted(first_s: int, end_s: int) -> tuple[Span, ...]:
    """The seconds of a throttle, after T0."""
    return (Span(T0_MS // 1_000 + first_s, T0_MS // 1_000 + end_s),)


def test_the_throttle_is_that_of_the_arithmetic(tmp_path: Path) -> None:
    settings = written(tmp_path, (QuotaType.PRODUCE, [point(T0_MS, 1_800_000)]))
    found = everything(
        settings, governor((ALICE, PRODUCER, 150_000.0)), governor((ALICE, PRODUCER, 120_000.0))
    )
    [difference] = found.differences
    assert difference.bucket == Bucket("alice", "")
    # 1,800,000 B in a window of 10 s are 180,000 B/s: 1,800,000 / 150,000 s - 10 s = 2 s, / 120,000 - 10 s = 5 s.
    assert difference.before == Side(150_000.0, 1, 1, 2_000, muted(0, 2), 0)
    assert difference.after == Side(120_000.0, 1, 1, 5_000, muted(0, 5), 0)
    assert difference.after.throttled_seconds == 5
    assert difference.more_ms == 3_000


def test_what_came_before_the_period_warms_the_ring_up_and_is_not_counted(tmp_path: Path) -> None:
    settings = written(
        tmp_path,
        (QuotaType.PRODUCE, [point(T0_MS, 1_800_000)]),
        (QuotaType.PRODUCE, [point(T0_MS + 2_000, 0)]),
    )
    quotas = governor((ALICE, PRODUCER, 120_000.0))
    [difference] = what_if(settings, quotas, quotas, T0_MS + 1_000, FOREVER_MS).differences
    # The window is still its shortest, 10 s, and the burst is in it.
    assert difference.before == difference.after == Side(120_000.0, 1, 1, 5_000, muted(2, 7), 0)


def test_a_fetch_that_was_throttled_is_unknown_under_another_limit_only(tmp_path: Path) -> None:
    throttled = point(T0_MS, 0, 700, PointKind.THROTTLED_FETCH)
    settings = written(tmp_path, (QuotaType.FETCH, [throttled]))
    before = governor((ALICE, CONSUMER, 100_000.0))
    [same] = everything(settings, before, before).differences
    assert same.before == same.after == Side(100_000.0, 1, 1, 700, muted(0, 1), 0)
    [raised] = everything(settings, before, governor((ALICE, CONSUMER, 200_000.0))).differences
    assert raised.after == Side(200_000.0, 1, 0, 0, (), 1)
    # Without any limit nothing is throttled, whatever it was.
    gone = {each.bucket: each.after for each in everything(settings, before, governor()).differences}
    assert gone == {Bucket("alice", ""): None, Bucket("", "etl"): Side(None, 1, 0, 0, (), 0)}


def test_gaps_and_polled_edits_leave_verdicts_uncertain_as_in_the_audit(tmp_path: Path) -> None:
    settings = written(tmp_path, *((QuotaType.PRODUCE, [point(T0_MS + s * 1_000, 9)]) for s in range(40)))
    gap = {"from_time": second(-1), "to_time": second(1), "reason": MID_STREAM}
    write_table(tmp_path, "log_gaps", {"cluster_id": "test", "broker_id": 1, **gap})
    # Known to have come between T0 + 20 s and T0 + 23 s; brokers may act on it for another 100 ms.
    polled = RulePeriod(ALICE, {PRODUCER: 1e6}, T0_MS + 20_000, None, 1, T0_MS + 23_000)
    book = RuleBook([RulePeriod(ALICE, {}, 0, T0_MS + 20_000, None), polled])
    gaps = stored_gaps(settings, {}, RateConfig())
    assert gaps[1] == ((T0_MS - 1_000, T0_MS + 13_000),)
    found = judged_again(stored_usage(settings, 0, FOREVER_MS), RuleGovernor(book), {}, RateConfig(), gaps)
    uncertain = [
        (decision.second_ms - T0_MS) // 1_000
        for judged in found.values()
        for decision in judged.decisions
        if not decision.is_certain
    ]
    assert sorted(uncertain) == [*range(13), *range(20, 24)]


def test_other_rules_make_other_buckets(tmp_path: Path) -> None:
    settings = written(tmp_path, (QuotaType.PRODUCE, [point(T0_MS, 1_800_000)]))
    found = everything(
        settings,
        governor((ALICE, PRODUCER, 150_000.0)),
        governor((Entity(None, "etl"), PRODUCER, 150_000.0)),
    )
    assert [(each.bucket, each.throttled_ms) for each in found.differences] == [
        (Bucket("", "etl"), (0, 2_000)),
        (Bucket("alice", ""), (2_000, 0)),
    ]


def test_usage_without_points_and_of_others_is_left_out(tmp_path: Path) -> None:
    settings = written(tmp_path, (QuotaType.PRODUCE, [point(T0_MS, 1_000)]))
    place = {"event_date": DAY, "broker_id": 1, "quota_type": "produce", "user": "u", "client_id": "c"}
    at = {"second": datetime.fromtimestamp(T0_MS // 1_000, UTC)}
    jmx = {**place, **at, "cluster_id": "test", "source": "jmx", "rate_per_s": 5.0}
    other = {**place, **at, "cluster_id": "other", "points": [point(T0_MS, 7)._asdict()]}
    write_table(tmp_path, "usage", jmx, other)
    [row] = stored_usage(settings, 0, FOREVER_MS)
    assert row == Traffic(
        1, QuotaType.PRODUCE, Principal("User", "alice"), "etl", T0_MS, [point(T0_MS, 1_000)]
    )


def answer(settings: Settings, tmp_path: Path, *more: str, quotas: str) -> tuple[int, str, str]:
    path = tmp_path / "tried.yaml"
    path.write_text(quotas, encoding="utf-8")
    return run(["whatif", "--quotas", str(path), "--tables", settings.tables, *more])


def test_the_command_says_what_changes(kraft: Settings, tmp_path: Path) -> None:
    code, out, err = answer(kraft, tmp_path, quotas="- {user: bob, type: producer_byte_rate, value: 2000}")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    assert "user bob" in out and " 2.0 kB/s " in out and " open " in out and " closed " in out
    code, out, _ = answer(kraft, tmp_path, "--output", "json", quotas="[]")
    found = json.loads(out)
    # Without any quota nothing is throttled.
    assert found["delay_by_replay_after_ms"] == 0 < found["delay_by_replay_ms"]
    assert sum(row["requests"] for row in found["rows"] if row["delay_by_replay_ms"] is not None) > 8_000


def test_the_command_says_why_it_cannot(kraft: Settings, tmp_path: Path) -> None:
    span = ("--since", "2026-11-21T06:00:00Z", "--until", "2026-11-21T05:00:00Z")
    code, _, err = answer(kraft, tmp_path, *span, quotas="[]")
    assert (code, err) == (
        1, "kquota: --since 2026-11-21 06:00:00 UTC: not before the end, 2026-11-21 05:00:00 UTC\n"
    )  # fmt: skip
    code, out, err = answer(
        kraft, tmp_path, "--since", "2026-11-20", "--until", "2026-11-20T01:00Z", quotas="[]"
    )
    assert (code, err) == (0, "") and "no produce or fetch" in out
    code, _, err = answer(kraft, tmp_path, quotas="{a: 1}")
    assert code == 1 and "not a list" in err


def test_a_quota_added_to_those_in_force_is_the_same_as_a_file_that_has_it(
    kraft: Settings, tmp_path: Path
) -> None:
    bob, key = Entity("bob"), QuotaKey.PRODUCER_BYTE_RATE
    held = from_tables(kraft).book
    changed = [dataclasses.replace(rule, values={**rule.values, key: 2_000.0}) for rule in held.of(bob)] or [
        RulePeriod(bob, {key: 2_000.0}, 0, None, None)
    ]
    others = [rule for entity in held if entity != bob for rule in held.of(entity)]
    expected = everything(kraft, RuleGovernor(held), RuleGovernor(RuleBook([*others, *changed])))
    code, out, err = run(
        ["whatif", "--add", "user=bob,producer_byte_rate=2000", "--tables", kraft.tables, "--output", "json"]
    )
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["delay_by_replay_after_ms"] == sum(each.throttled_ms[1] for each in expected.differences)
    assert found["delay_by_replay_after_ms"] > found["delay_by_replay_ms"]
    # On top of a file without any quota: bob's alone.
    code, out, _ = answer(
        kraft, tmp_path, "--add", "user=bob,producer_byte_rate=2000", "--output", "json", quotas="[]"
    )
    limited = {row["bucket_user"] for row in json.loads(out)["rows"] if row["delay_by_replay_after_ms"]}
    assert (code, limited) == (0, {"bob"})


def test_a_quota_to_add_may_have_units() -> None:
    found = added_quotas(["user=bob,producer_byte_rate=250kB/s,request_percentage=50%"])
    values = {QuotaKey.PRODUCER_BYTE_RATE: 250_000.0, QuotaKey.REQUEST_PERCENTAGE: 50.0}
    assert found == {Entity("bob"): values}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("user=bob", "names no quota, one of producer_byte_rate, consumer_byte_rate, request_percentage, "),
        (
            "producer_byte_rate=1",
            "names no user or client-id, expected e.g. user=bob,producer_byte_rate=250000",
        ),
        (
            "user=bob,producer_byte_rat=1",
            "unknown name 'producer_byte_rat', did you mean producer_byte_rate?",
        ),
        ("user=bob,producer_byte_rate", "'producer_byte_rate' is no name=value, expected e.g. user=bob,"),
        (
            "user=bob,producer_byte_rate=1.5",
            "producer_byte_rate is '1.5', expected a whole number of bytes per ",
        ),
        (
            "user=bob,producer_byte_rate=2KB/s",
            "producer_byte_rate is '2KB/s', expected a whole number of bytes per ",
        ),
        (
            "user=bob,producer_byte_rate=-1",
            "producer_byte_rate is '-1', expected a whole number of bytes per ",
        ),
    ],
)
def test_a_quota_to_add_that_is_none(kraft: Settings, text: str, error: str) -> None:
    code, out, err = run(["whatif", "--add", text, "--tables", kraft.tables])
    assert (code, out) == (1, "")
    assert err.startswith(f"kquota: --add {text}: {error}")


def test_nothing_to_try(kraft: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["whatif", "--tables", kraft.tables])
    assert ended.value.code == 2
    assert "no quotas to try: give --quotas FILE, or --add user=NAME" in capsys.readouterr().err


def test_added_values_hold_at_all_times_beside_the_other_keys_of_their_entity() -> None:
    alice, etl = Entity("alice"), Entity(None, "etl")
    produce, fetch = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
    book = RuleBook(
        [
            RulePeriod(alice, {fetch: 5.0}, 100, 200, 1),
            RulePeriod(alice, {fetch: 5.0, produce: 6.0}, 300, None, 2),
            RulePeriod(etl, {produce: 9.0}, 0, None, 3),
        ]
    )
    found = with_values(book, {alice: {produce: 1.0}, Entity("bob"): {fetch: 2.0}})
    assert found.of(alice) == (
        RulePeriod(alice, {produce: 1.0}, 0, 100, None),
        RulePeriod(alice, {fetch: 5.0, produce: 1.0}, 100, 200, 1),
        RulePeriod(alice, {produce: 1.0}, 200, 300, None),
        RulePeriod(alice, {fetch: 5.0, produce: 1.0}, 300, None, 2),
    )
    assert found.of(Entity("bob")) == (RulePeriod(Entity("bob"), {fetch: 2.0}, 0, None, None),)
    assert found.of(etl) == book.of(etl)
