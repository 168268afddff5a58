"""Cards about limits that throttle: the least value of a replay, bursts, limits to leave, and the sum of raises."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Enforcement, Settings
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.reports.advice.quota_command import whatif_command
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.right_sizes import period_sizes
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.shared_rows import RaiseSum, Recommendation
from kquota_spark.reports.sections import AuditReport
from kquota_spark.store.rows import entity_columns
from tests.support.logs.captures import KRAFT41
from tests.support.logs.replayed_captures import run
from tests.support.reports.gathered_report import Row, gathered, rule, throttled
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.table_rows import T0_MS, decision, second, usage

OF_ALICE = rule(Entity("alice"), producer_byte_rate=1e6)
DAY_MS = 86_400_000
MIDNIGHT_MS = T0_MS // DAY_MS * DAY_MS


def _sent(at_s: int, amount: int, kind: PointKind = PointKind.PRODUCE, **changed: Any) -> Row:
    """A second of usage with one request at its beginning."""
    time_ms = T0_MS + 1_000 * at_s
    point = Point(time_ms, time_ms + 1, 1, at_s, amount, 0, int(kind))
    return usage(at_s, amount=amount, points=[point._asdict()], **changed)


def _steady(seconds: Iterable[int] = range(60), **changed: Any) -> list[Row]:
    """Throttled seconds with as many bytes as their rate."""
    return [throttled(at_s, amount=1_100_000, **changed) for at_s in seconds]


def _card(page: AuditReport) -> Recommendation:
    (card,) = page.recommendations
    return card


@pytest.fixture(scope="module")
def kraft(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Tables of a real run with ten buckets that are throttled for a minute and more."""
    return write_capture(tmp_path_factory.mktemp("kraft41"), KRAFT41)


def test_whatif_throttles_nothing_at_the_least_value_and_something_one_unit_lower(kraft: Settings) -> None:
    page = gather_report(kraft, Period(MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS), made_at_ms=MIDNIGHT_MS + DAY_MS)
    cards = {card.entity: card for card in page.recommendations if card.least is not None}
    assert len(cards) == 8
    for entity in ("users/alice/clients/etl", "clients/pulse"):
        card = cards[entity]
        assert card.present is not None and card.least is not None and card.recommended is not None
        assert card.present < card.least < card.recommended
        name = f"producer_byte_rate={card.least:.0f}"
        command = next(one.command for one in card.alternatives if name in one.command)
        lower = command.replace(name, f"producer_byte_rate={card.least - 1:.0f}")
        assert lower != command
        bucket = Entity.parse(entity)
        found = []
        for line in (command, lower):
            code, out, err = run([*shlex.split(line)[1:], "--tables", kraft.tables, "--output", "json"])
            assert (code, err) == (0, "")
            [row] = [
                row
                for row in json.loads(out)["rows"]
                if (row["bucket_user"], row["bucket_client_id"]) == (bucket.user or "", bucket.client_id)
                and (row["quota_type"], row["loop"]) == ("produce", "open")
            ]
            found.append(row["throttled_requests_by_replay_after"])
        assert found[0] == 0 < found[1]


def test_the_seconds_with_a_throttle_under_a_value_come_from_the_requests(tmp_path: Path) -> None:
    # A request of 22,000,000 B at 0 s and of 9,000,000 B at 100 s, each alone in a window of 10 s: 2,200,000 and
    # 900,000 B/s. Only the first one is above 1,000,000, and neither is above the estimate, 1,100,000 x 2.
    sent = [_sent(0, 22_000_000), _sent(100, 9_000_000)]
    page = gathered(tmp_path, decisions=_steady(), usages=sent, seconds=110, quota_rules=[OF_ALICE])
    card = _card(page)
    assert card.recommended == 2_200_000
    # (2,200,000 - L) / L * 10,000 ms: under 2,199,890 0.50003 ms, rounded to 1; under 2,199,891 0.49548, to 0.
    assert card.least == 2_199_891
    assert card.expected.startswith("1 → 0 throttled requests, by replay of 2 recorded ones; ")


def test_an_estimate_that_is_too_low_for_the_requests_says_how_many_seconds_are_left(tmp_path: Path) -> None:
    sent = [_sent(0, 33_000_000), _sent(50, 15_000_000)]  # 3,300,000 and 1,500,000 B/s under 2,200,000
    page = gathered(tmp_path, decisions=_steady(), usages=sent, seconds=110, quota_rules=[OF_ALICE])
    assert _card(page).expected.startswith("2 → 1 throttled requests, by replay of 2 recorded ones; ")


def test_the_least_value_for_throttled_fetches_is_not_known(tmp_path: Path) -> None:
    of_fetch: Row = {"quota_type": "fetch"}
    sent = [_sent(0, 22_000_000, PointKind.FETCH, **of_fetch)]
    sent += [_sent(1, 0, PointKind.THROTTLED_FETCH, **of_fetch)]
    rules = [rule(Entity("alice"), consumer_byte_rate=1e6)]
    page = gathered(tmp_path, decisions=_steady(**of_fetch), usages=sent, seconds=110, quota_rules=rules)
    card = _card(page)
    assert (card.least, card.recommended) == (None, 2_200_000)
    assert card.expected == (
        "not known: the sizes of 1 of its requests are not in the log, as of throttled fetches"
    )


def test_of_a_bucket_with_many_requests_the_newest_ones_are_replayed(tmp_path: Path) -> None:
    # With second 5 it would be more than 50,000 requests. Seconds from 6 on are read; 130 s of them warm up.
    sent = [_sent(0, 99_000_000), _sent(5, 1, requests=50_000), _sent(150, 22_000_000)]
    page = gathered(tmp_path, decisions=_steady(), usages=sent, seconds=160, quota_rules=[OF_ALICE])
    card = _card(page)
    assert card.least == 2_199_891  # as above, from the request at 150 s alone
    assert card.alternatives[0].command == (
        "kquota whatif --add user=alice,producer_byte_rate=2199891 --since 2026-11-21T05:42:16Z --until "
        "2026-11-21T05:42:40Z"
    )


def test_traffic_in_half_of_the_time_is_bursts_although_it_is_throttled_in_most_of_its_seconds(
    tmp_path: Path,
) -> None:
    # nightly: every other second 1,400,000 B, all throttled. Over 119 s the mean is 60 x 1.4 MB / 119 s = 706 kB/s.
    seconds = range(0, 120, 2)
    rows = [throttled(at_s, amount=1_400_000) for at_s in seconds]
    sent = [_sent(at_s, 1_400_000) for at_s in seconds[:1]] + [_sent(60, 11_000_000)]
    page = gathered(tmp_path, decisions=rows, usages=sent, seconds=120, quota_rules=[OF_ALICE])
    card = _card(page)
    assert card.cause == (
        "100 % of the delay: a burst after a pause, 11.0 MB at 11-21 05:41:00; the limit lets it through within 60 s"
    )
    assert "Spread what need not be sent at once, or take a larger window (quota.window.num). " in card.reason
    # 11,000,000 B in 10 s: (1,100,000 - L) / L * 10,000 ms is 0.5 ms at L = 1,099,945.003; two digits, up: 1,100,000.
    assert (card.least, card.recommended) == (1_099_946, 1_100_000)


def test_a_throttle_within_the_objective_is_left_to_the_quota(tmp_path: Path) -> None:
    # 60 throttled seconds of 6,001 are 0.9998 %; of 6,000 they are 1 %, no longer below the objective.
    left = _card(gathered(tmp_path / "a", decisions=_steady(), seconds=6_001, quota_rules=[OF_ALICE]))
    assert left.is_left and (left.recommended, left.command, left.brokers) == (None, "", ())
    assert left.reason == (
        "Leave it: the quota does its work. It was throttled in 100 % of 60 seconds with traffic on broker 1 under "
        "1,000,000 B/s: throttled in 1.00 % of the time, and the objective is 1 %"
    )
    raised = _card(gathered(tmp_path / "b", decisions=_steady(), seconds=6_000, quota_rules=[OF_ALICE]))
    assert not raised.is_left and raised.recommended == 2_200_000


def _policy(root: Path, capacity: float) -> Settings:
    """Settings with a policy that states the capacity of a broker, of which 70 % may be used."""
    path = root / "policy.yaml"
    path.write_text(
        "mode: observe\nguards: {bounds: {producer_byte_rate: {floor: 1, ceiling: 1000000000}}}\npolicies:\n"
        f"- {{name: up, kind: raise, broker_capacity_per_s: {{producer_byte_rate: {capacity:.0f}}}}}\n"
    )
    return Settings(cluster_id="demo", tables=str(root), enforcement=Enforcement(policy_file=str(path)))


def test_a_limit_is_left_where_its_broker_has_no_headroom_for_the_estimate(tmp_path: Path) -> None:
    gathered(tmp_path, decisions=_steady(), usages=[_sent(0, 100_000)], seconds=110, quota_rules=[OF_ALICE])
    period = Period(T0_MS, T0_MS + 110_000)
    # The estimate is 2,200,000, so 1,200,000 more. The broker used 10,000 B/s (100,000 B in ten seconds).
    # 70 % of 1,700,000 less 10,000 are 1,180,000; of 1,800,000 they are 1,250,000.
    left, raised = (
        gather_report(_policy(tmp_path, capacity), period, made_at_ms=T0_MS) for capacity in (1.7e6, 1.8e6)
    )
    assert _card(left).is_left and left.raises == ()
    assert _card(left).reason.endswith(
        ": it wants about 1,200,000 B/s more in most of the time, and broker 1 has headroom for 1,180,000 B/s"
    )
    assert _card(raised).recommended == 2_200_000
    # Its only request is below the limit: no least value above the limit, so the estimate counts in both sums.
    assert raised.raises == (RaiseSum(1, "produce", 1, 1_200_000, 1_200_000, 1_250_000),)


def test_raises_are_added_up_by_broker_and_the_headroom_without_a_policy_is_not_known(tmp_path: Path) -> None:
    of_bob: Row = {"bucket_user": "bob", "rule": "users/bob", "users": ["bob"]}
    rows = [*_steady(), *_steady(broker_id=2), *_steady(**of_bob)]
    sent = [_sent(0, 22_000_000)]
    rules = [OF_ALICE, rule(Entity("bob"), producer_byte_rate=1e6)]
    gathered(tmp_path, decisions=rows, usages=sent, seconds=110, quota_rules=rules)
    settings = Settings(
        cluster_id="demo", tables=str(tmp_path), enforcement=Enforcement(policy_file=str(tmp_path / "none"))
    )
    page = gather_report(settings, Period(T0_MS, T0_MS + 110_000), made_at_ms=T0_MS)
    # Each estimate is 1,200,000 above its limit. Alice's least value is 2,199,891, 1,199,891 above; bob's is not known.
    assert page.raises == (
        RaiseSum(1, "produce", 2, 2_399_891, 2_400_000, None),
        RaiseSum(2, "produce", 1, 1_199_891, 1_200_000, None),
    )


@pytest.mark.parametrize(("source", "is_left"), [("policy", True), ("edit", False)])
def test_a_cut_of_enforcement_is_meant_and_of_an_unknown_edit_it_can_be_undone(
    tmp_path: Path, source: str, is_left: bool
) -> None:
    place = {"cluster_id": "demo", **entity_columns(Entity("alice"))}
    edit = {
        **place, "key": "producer_byte_rate", "value": 1e6, "previous_value": 2e6, "changed_at": second(0),
        "version": 1, "source": "zookeeper", "observed_at": second(0),
    }  # fmt: skip
    step = {
        **place, "sequence": 1, "at": second(0), "event": "applied", "policy": "repeat-offenders", "actor": "enforcer",
        "key": "producer_byte_rate", "value_before": 2e6, "value_after": 1e6, "reason": "over its limit all the time",
    }  # fmt: skip
    others: dict[str, Any] = {"quota_changes": [edit]} if source == "edit" else {"enforcement_log": [step]}
    page = gathered(
        tmp_path, decisions=_steady(), usages=[_sent(0, 1)], seconds=110, quota_rules=[OF_ALICE], **others
    )
    card = _card(page)
    assert card.is_left is is_left
    cut = "the limit went from 2.0 MB/s to 1.0 MB/s at 11-21 05:40:00"
    assert card.cause == cut
    by = "by repeat-offenders: over its limit all the time (enforcement applied), so the cut is meant"
    assert card.reason.endswith(f"under 1,000,000 B/s: {cut} {by}") is is_left
    undo = "kquota alter --name user=alice --add producer_byte_rate=2000000 --dry-run"
    alternatives = [(one.text, one.command) for one in card.alternatives]
    assert (("undo the cut: 2,000,000 B/s again", undo) in alternatives) is not is_left


@pytest.mark.parametrize("name", ["a,b", "<default>"])
def test_a_name_that_whatif_cannot_read_gets_no_command(name: str) -> None:
    assert whatif_command(Entity(name), {QuotaKey.PRODUCER_BYTE_RATE: 1.0}, 0, 1_000) == ""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes as long as it takes: a busy machine must not leave right sizes out."""
    monkeypatch.setattr(period_sizes, "LEAST_S", 600.0)
    monkeypatch.setattr(period_sizes, "MOST_S", 600.0)


def _weeks(days: int, amount: int) -> list[Row]:
    """So many days before the period: each has 100 windows with a second of so many bytes, none of them throttled."""
    return [decision(-day * 86_400 + 10 * n, amount=amount) for day in range(1, days + 1) for n in range(100)]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("tenant", [None, "alice"])
def test_a_value_is_the_right_size_where_there_are_two_weeks(tmp_path: Path, tenant: str | None) -> None:
    rows = [*_weeks(15, 13_000_000), *_steady()]
    page = gathered(
        tmp_path, decisions=rows, usages=[_sent(0, 1)], seconds=110, tenant=tenant, quota_rules=[OF_ALICE]
    )
    [card] = [one for one in page.recommendations if one.key]
    # 13,000,000 B in ten seconds are 1,300,000 B/s, in bin 288 (1.05^288 to 1.05^289). The throttled windows of the
    # period, 1,100,000 B/s and more, add nothing. The 99th percentile and 10 %, with three digits:
    assert card.recommended == float(f"{1.1 * 1.05 ** (288 + 0.99):.3g}") == 1_460_000
    assert card.estimate == "right size"
    # The bounds are those of the bin, widened by 1/15.
    low, high = 1.05**288 / (1 + 1 / 15), 1.05**289 * (1 + 1 / 15)
    assert card.reason.endswith(
        f"It got 1,100,000 B/s, and its right size of 15 days is 1,460,000 B/s, for a demand of {low:,.0f} B/s to "
        f"{high:,.0f} B/s"
    )
    assert (
        card.confidence == "good: such bounds hold the demand of the next week for about nine clients of ten"
    )
    assert ("producer_byte_rate=1460000" in card.command) is (tenant is None)


@pytest.mark.usefixtures("patient")
def test_the_value_of_a_card_is_that_of_the_command(tmp_path: Path) -> None:
    rows = [*_weeks(15, 13_000_000), *_steady()]
    page = gathered(tmp_path, decisions=rows, usages=[_sent(0, 1)], seconds=110, quota_rules=[OF_ALICE])
    words = ("rightsize", "--tables", str(tmp_path), "--user", "alice", "--output", "json")
    code, out, _ = run([*words])
    [row] = json.loads(out)["rows"]
    assert (code, float(f"{row['target_per_s']:.3g}")) == (0, _card(page).recommended)


def test_with_13_days_a_value_is_by_the_share_of_throttled_seconds(tmp_path: Path) -> None:
    rows = [*_weeks(13, 13_000_000), *_steady()]
    card = _card(
        gathered(tmp_path, decisions=rows, usages=[_sent(0, 1)], seconds=110, quota_rules=[OF_ALICE])
    )
    assert (card.recommended, card.estimate) == (2_200_000, "share of throttled seconds")  # 1,100,000 x 2
    assert card.reason.endswith("and it wanted about 2,200,000 B/s by the share of its time throttled")


@pytest.mark.usefixtures("patient")
def test_a_limit_that_fits_its_weeks_is_left_as_it_is(tmp_path: Path) -> None:
    rows = [*_weeks(15, 5_000_000), *_steady()]
    card = _card(
        gathered(tmp_path, decisions=rows, usages=[_sent(0, 1)], seconds=110, quota_rules=[OF_ALICE])
    )
    # 500,000 B/s are in bin 268. Six windows of the period are above it, 0.5 % of the weight.
    target = float(f"{1.1 * 1.05**269:.3g}")
    assert card.is_left and card.recommended is None
    assert "Leave it: the quota does its work. It was throttled in 100 % of 60 seconds" in card.reason
    found = re.search(r": its right size of 15 days is ([\d,]+) B/s, for a demand of", card.reason)
    assert found is not None and float(found[1].replace(",", "")) <= target < 1e6


def test_a_quiet_bucket_has_no_card(tmp_path: Path) -> None:
    rows = [decision(at_s) for at_s in range(100)]
    assert gathered(tmp_path, decisions=rows, seconds=110, quota_rules=[OF_ALICE]).raises == ()
