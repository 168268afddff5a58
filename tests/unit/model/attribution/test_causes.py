"""The causes of generated delays: the known main cause comes first, nobody is blamed without reason, all adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from time import process_time

import pytest

from kquota_spark.model.attribution.backlogs import Position
from kquota_spark.model.attribution.causes import (
    LEAST_DELAY_MS,
    NAMED_PERCENT,
    Attribution,
    attribute,
    parts_of,
)
from kquota_spark.model.attribution.counterfactuals import (
    Case,
    Change,
    Client,
    LimitFrom,
    Replay,
    Request,
    scaled,
    with_own_times,
)
from kquota_spark.model.attribution.detectors import DETECTORS, Cause
from kquota_spark.model.attribution.precision import TRIED, Tried, confidence
from kquota_spark.model.measure.sampled_rate import RateConfig
from tests.support.attribution.labelled import CAUSES, NULLS, mixture
from tests.support.attribution.seeds import HELD_OUT, HELD_OUT_MIXTURES, HELD_OUT_NULLS, KNOWN
from tests.support.attribution.simulated import FROM_MS, Recording, Sender, observed, sent
from tests.support.chance import Chance

T = 1_000_000


def _tried(seeds: Sequence[int]) -> tuple[Counter[tuple[Cause, Cause | None]], list[Attribution]]:
    """How often each cause was found for each label, and all answers."""
    found: Counter[tuple[Cause, Cause | None]] = Counter()
    answers = []
    for seed, (cause, made) in zip(seeds, cycle(CAUSES.items()), strict=False):
        answers.append(attribute(observed(made(Chance(seed)))))
        found[cause, answers[-1].main] += 1
    return found, answers


@pytest.fixture(scope="module")
def held_out() -> tuple[Counter[tuple[Cause, Cause | None]], list[Attribution]]:
    found, answers = _tried(HELD_OUT)
    print("label -> found: " + ", ".join(f"{a.value} -> {b and b.value}: {n}" for (a, b), n in found.items()))
    return found, answers


@pytest.mark.parametrize("seed", KNOWN)
@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.value)
def test_the_main_cause_of_a_known_case_comes_first(cause: Cause, seed: int) -> None:
    assert attribute(observed(CAUSES[cause](Chance(seed)))).main is cause


def test_the_main_cause_of_at_least_28_of_30_held_out_cases_comes_first(
    held_out: tuple[Counter[tuple[Cause, Cause | None]], list[Attribution]],
) -> None:
    found, answers = held_out
    assert len(answers) == 30
    assert sum(count for (label, answer), count in found.items() if label is answer) >= 28


def test_the_parts_and_the_rest_of_each_case_add_up_to_its_delay(
    held_out: tuple[Counter[tuple[Cause, Cause | None]], list[Attribution]],
) -> None:
    for each in held_out[1]:
        assert each.rest_ms + sum(part.share_ms for part in each.parts) == each.delay_ms >= LEAST_DELAY_MS


def test_the_larger_of_two_causes_comes_first_in_held_out_mixtures() -> None:
    answers = [attribute(observed(mixture(Chance(seed)))) for seed in HELD_OUT_MIXTURES]
    assert all(len(answer.parts) >= 2 for answer in answers)
    assert [answer.main for answer in answers] == [Cause.GROWTH] * len(HELD_OUT_MIXTURES)


@pytest.mark.parametrize(("seed", "made"), list(zip(HELD_OUT_NULLS, cycle(NULLS), strict=False)))
def test_nobody_is_blamed_where_nothing_changed(seed: int, made: Callable[[Chance], Recording]) -> None:
    assert attribute(observed(made(Chance(seed)))).named == ()


def test_a_cause_below_a_tenth_is_not_named() -> None:
    found = attribute(observed(CAUSES[Cause.GROWTH](Chance(1))))
    assert [part.cause for part in found.named] == [Cause.GROWTH]
    assert NAMED_PERCENT == 10
    part = found.parts[0]
    assert part.share_percent == 100 * part.share_ms / found.delay_ms >= 10


def test_a_client_with_all_its_traffic_on_one_broker_has_no_hot_broker() -> None:
    recording = CAUSES[Cause.STEADY](Chance(5))._replace(brokers=(1, 2, 3))
    found = attribute(observed(recording))
    assert (found.parts, found.main) == ((), Cause.STEADY)
    # One of 40 requests goes elsewhere: 2.5 % on average.
    records = [
        replace(each, broker_id=2) if place % 40 == 0 else each
        for place, each in enumerate(recording.records)
    ]
    assert attribute(observed(recording._replace(records=records))).main is Cause.HOT_BROKER


def test_a_new_client_that_came_before_the_first_throttle_is_no_growth() -> None:
    chance = Chance(6)
    alice = Sender(("alice", "app"), lambda _: 20_000.0, lambda _: 1_000.0)
    new = Sender(("newcomer", "app"), lambda _: 30_000.0, lambda _: 1_000.0, from_ms=FROM_MS - 8_000)
    limits = (LimitFrom(0, 40_000.0),)
    known = observed(Recording(sent([alice, new], limits, chance), limits))
    assert known.baseline is not None
    assert known.baseline.clients["newcomer", "app"].amount > 0
    assert [part.cause for part in attribute(known).parts] == [Cause.NEW_CLIENT]


def test_fetches_from_an_earlier_offset_are_the_cause() -> None:
    before = observed(CAUSES[Cause.STEADY](Chance(3)))
    asked = [each for each in before.case.requests if each.time_ms >= FROM_MS]
    # The consumer follows the end of the partition. In the period it reads from its beginning, far behind.
    positions = {
        each.order: [Position("orders", 0, 1_000 + each.order, 1_001 + each.order)]
        for each in before.case.requests
    } | {each.order: [Position("orders", 0, place, 9_000)] for place, each in enumerate(asked)}
    found = attribute(replace(before, positions=positions))
    assert [part.cause for part in found.named] == [Cause.BACKFILL]
    facts = found.parts[0].facts
    last = max(
        each.order
        for each in before.case.requests
        if each.time_ms < FROM_MS and each.connection == asked[0].connection
    )
    assert facts["back_records"] == 1_000 + last
    assert facts["lag_records"] == 9_000
    assert found.parts[0].share_ms + found.rest_ms == found.delay_ms


def test_confidence_is_the_share_times_the_precision_of_the_detector() -> None:
    # Laplace's rule: (5 + 1) / (5 + 2), and (6 + 1) / (10 + 2).
    assert (Tried(5, 5).precision, Tried(10, 6).precision) == (6 / 7, 7 / 12)
    precision = TRIED[Cause.GROWTH].precision
    assert 0.5 < precision < 1
    assert confidence(Cause.GROWTH, 50.0) == 0.5 * precision
    assert confidence(Cause.GROWTH, 120.0) == precision
    assert confidence(Cause.GROWTH, -5.0) == 0.0
    part = attribute(observed(CAUSES[Cause.GROWTH](Chance(1)))).parts[0]
    assert part.confidence == min(part.share_percent / 100, 1.0) * precision


def test_each_cause_has_labelled_runs() -> None:
    assert set(TRIED) == set(Cause)


def test_a_detector_can_be_added() -> None:
    case = observed(CAUSES[Cause.STEADY](Chance(2)))
    asked = []
    added = DETECTORS[0]._replace(find=lambda observed, _: asked.append(observed))
    assert attribute(case, [added]).parts == ()
    assert asked == [case]


def _thousand(clients: Sequence[Client]) -> tuple[Case, Replay]:
    """1,000 requests of eight clients in one bucket, all at once above its limit."""
    chance = Chance(8)
    times_ms = sorted(chance.randrange(100_000) for _ in range(1_000))
    requests = [
        Request(T + at, order, 1, order % 16, clients[order % 8], chance.randrange(500, 1_500))
        for order, at in enumerate(times_ms)
    ]
    replay = Replay(RateConfig(), T)
    return with_own_times(Case(requests, (LimitFrom(0, 5_000.0),)), replay), replay


def test_8_causes_of_1000_requests_take_one_second_at_most_and_add_up() -> None:
    clients = [(f"user{number}", "app") for number in range(8)]
    case, replay = _thousand(clients)
    changes: list[Change] = [partial(scaled, factors={client: (1, 2)}, kept=()) for client in clients]
    begun = process_time()
    divided, without_ms = parts_of(case, replay, changes)
    taken_s = process_time() - begun
    print(f"8 causes, 1,000 requests: {taken_s:.2f} s")
    assert divided.whole == (replay.delay_ms(case),)
    assert divided.base[0] + sum(part for (part,) in divided.parts) == divided.whole[0]
    assert len(without_ms) == 8
    assert taken_s <= 1.0


def test_a_change_that_changes_nothing_gets_0_among_others() -> None:
    clients = [(f"user{number}", "app") for number in range(8)]
    case, replay = _thousand(clients)
    changes: list[Change] = [
        partial(scaled, factors={clients[0]: (1, 2)}, kept=()),
        partial(scaled, factors={("nobody", ""): (1, 2)}, kept=()),
        partial(scaled, factors={clients[1]: (1, 2)}, kept=()),
    ]
    divided, without_ms = parts_of(case, replay, changes)
    assert divided.parts[1] == (0,)
    assert without_ms[1] == divided.whole[0]
    assert divided.parts[0][0] > 0 < divided.parts[2][0]
