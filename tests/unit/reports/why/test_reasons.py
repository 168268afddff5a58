"""Causes from tables: the answer is that of the simulated cluster that the tables were written of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.causes import Part, attribute
from kquota_spark.model.attribution.counterfactuals import LimitFrom
from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.attribution.observed import BaselineKind
from kquota_spark.model.attribution.sharing import who_slowed_whom
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.before import Before
from kquota_spark.reports.why.reasons import Bounds, reasons
from kquota_spark.reports.why.recorded import Wanted, recorded
from kquota_spark.reports.why.request_counts import RequestCount
from kquota_spark.reports.why.sentences import cure_of, main_sentence, short_text, title_of
from kquota_spark.store.reading import Tables
from tests.support.attribution.labelled import CAUSES
from tests.support.attribution.simulated import FROM_MS, TO_MS, observed, totals
from tests.support.attribution.tables import write_recording
from tests.support.chance import Chance
from tests.support.tables.table_rows import usage, write_table

APP = BucketName("produce", "", "app")
WANTED = Wanted(APP, FROM_MS, TO_MS)


def _reasons(root: Path, wanted: Wanted = WANTED, most_requests: int = 10**6) -> list[Reasons]:
    settings = Settings(cluster_id="demo", tables=str(root))
    return list(reasons(settings, [wanted], Bounds(most_requests)).found.values())


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.value)
def test_the_tables_give_the_cause_of_the_cluster(cause: Cause, tmp_path: Path) -> None:
    recording = CAUSES[cause](Chance(4))
    write_recording(tmp_path, recording, Entity(client_id="app"))
    [found] = _reasons(tmp_path)
    known = observed(recording)
    assert found.attribution.main is cause
    assert found.delay_ms == sum(
        each.throttle_ms for each in recording.records if FROM_MS <= each.time_ms < TO_MS
    )
    assert found.attribution.delay_ms == known.delay_ms
    # The replay begins 130 s before the period, so its samples may begin at other moments than the brokers'.
    assert found.attribution.delay_ms == pytest.approx(found.delay_ms, rel=0.15)
    assert attribute(known).delay_ms == found.attribution.rest_ms + sum(
        part.share_ms for part in found.attribution.parts
    )
    if found.sharing is not None:
        assert found.sharing == who_slowed_whom(known.case, known.replay)


def test_the_same_hour_of_the_day_before_is_the_baseline_where_the_tables_have_it(tmp_path: Path) -> None:
    recording = CAUSES[Cause.GROWTH](Chance(4))
    write_recording(tmp_path, recording, Entity(client_id="app"))
    write_table(tmp_path, "usage", usage(-7_200, user="earlier", points=[]))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    [of_one] = recorded(settings, [WANTED]).values()
    with Tables(settings) as tables:
        tables.open("usage")
        before = Before(settings, tables)
        usual = before.observed(WANTED, of_one).baseline
        assert usual is not None
        assert usual.kind is BaselineKind.BEFORE
        assert usual.seconds == 600
        # The samples of 11 s before the throttle may have the change in them.
        assert usual.clients == totals(
            [each for each in recording.records if FROM_MS - 611_000 <= each.time_ms < FROM_MS - 11_000]
        )
        later = before.observed(_replaced(WANTED, 86_400_000), of_one)
        weeks = before.observed(_replaced(WANTED, 2 * 7 * 86_400_000), of_one)
    assert later.baseline is not None
    assert weeks.baseline is not None
    assert (later.baseline.kind, later.baseline.seconds) == (BaselineKind.DAY, 3_600)
    assert (weeks.baseline.kind, weeks.baseline.seconds) == (BaselineKind.WEEKS, 3_600)
    assert later.baseline.clients == weeks.baseline.clients


def _replaced(wanted: Wanted, by_ms: int) -> Wanted:
    return wanted._replace(from_ms=wanted.from_ms + by_ms, to_ms=wanted.to_ms + by_ms)


def test_a_period_with_too_many_requests_ends_after_them(tmp_path: Path) -> None:
    write_recording(tmp_path, CAUSES[Cause.STEADY](Chance(4)), Entity(client_id="app"))
    [found] = _reasons(tmp_path, most_requests=100)
    assert (found.from_ms, found.attribution.main) == (FROM_MS, Cause.STEADY)
    assert FROM_MS + 1_000 <= found.to_ms < TO_MS


def test_other_types_and_tags_of_a_callback_have_no_answer(tmp_path: Path) -> None:
    bucket = replace(APP, quota_type="controller_mutation")
    assert _reasons(tmp_path, WANTED._replace(bucket=bucket)) == []
    assert _reasons(tmp_path, WANTED._replace(bucket=replace(APP, tags='{"group":"pay"}'))) == []


def test_a_bucket_without_a_limit_has_no_answer(tmp_path: Path) -> None:
    write_recording(tmp_path, CAUSES[Cause.STEADY](Chance(4)), Entity(user="somebody"))
    assert _reasons(tmp_path) == []


def test_a_sentence_without_names_has_none(tmp_path: Path) -> None:
    write_recording(tmp_path, CAUSES[Cause.NEW_CLIENT](Chance(4)), Entity(client_id="app"))
    [found] = _reasons(tmp_path)
    assert "newcomer / app is new (first seen at 11-21 " in main_sentence(found)
    assert main_sentence(found, with_names=False).endswith("% of the delay: new client")


MIDDLE_MS = FROM_MS + 60_000
FIRST, SECOND = Wanted(APP, FROM_MS, MIDDLE_MS), Wanted(APP, MIDDLE_MS, TO_MS)


def test_the_answer_of_a_period_is_the_same_whatever_else_is_asked(tmp_path: Path) -> None:
    recording = CAUSES[Cause.STEADY](Chance(4))
    limit = recording.limits[0].limit_per_s
    assert limit is not None
    cuts = [
        LimitFrom(0, 4 * limit),
        LimitFrom(FROM_MS - 270_000, 2 * limit),
        LimitFrom(FROM_MS + 1_000, limit),
    ]
    write_recording(tmp_path, recording._replace(limits=tuple(cuts)), Entity(client_id="app"))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    # The first limit governed more than the warm-up before the last minute: only the early period reads its requests.
    early, late = Wanted(APP, FROM_MS - 300_000, FROM_MS - 240_000), Wanted(APP, TO_MS - 60_000, TO_MS)
    asked = [SECOND, early, FIRST, late]
    together = reasons(settings, [*asked, FIRST]).found
    alone = [reasons(settings, [one]).found[one] for one in asked]
    assert [together[one] for one in asked] == alone
    assert len(together) == 4
    assert len({one.attribution.delay_ms for one in alone}) == 4


def test_periods_that_are_cut_to_the_same_beginning_have_one_answer(tmp_path: Path) -> None:
    write_recording(tmp_path, CAUSES[Cause.STEADY](Chance(4)), Entity(client_id="app"))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    shorter = WANTED._replace(to_ms=TO_MS - 1_000)
    found = reasons(settings, [WANTED, shorter], Bounds(of_bucket=100)).found
    assert found[WANTED] is found[shorter]


def test_buckets_beyond_the_requests_of_all_are_left_out_and_the_first_never_is(tmp_path: Path) -> None:
    recording = CAUSES[Cause.STEADY](Chance(4))
    write_recording(tmp_path, recording, Entity(client_id="app"))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    count = {
        one: sum(one.from_ms <= each.time_ms < one.to_ms for each in recording.records)
        for one in (FIRST, SECOND)
    }
    whole = count[FIRST] + count[SECOND]

    def within(of_all: int) -> tuple[list[Wanted], tuple[Wanted, ...]]:
        explained = reasons(settings, [SECOND, FIRST], Bounds(of_all=of_all))
        return list(explained.found), explained.left_out

    assert within(whole) == ([SECOND, FIRST], ())
    assert within(whole - 1) == ([SECOND], (FIRST,))
    assert within(0) == ([SECOND], (FIRST,))


def test_buckets_that_are_counted_already_are_not_counted_again(tmp_path: Path) -> None:
    write_recording(tmp_path, CAUSES[Cause.STEADY](Chance(4)), Entity(client_id="app"))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    # The given count is wrong on purpose: only a second count would find that both are within the bound.
    counted = {FIRST: RequestCount(None, 1_000_000)}
    explained = reasons(settings, [SECOND, FIRST], Bounds(of_all=999_999), counted)
    assert (list(explained.found), explained.left_out) == ([SECOND], (FIRST,))
    assert reasons(settings, [SECOND, FIRST], Bounds(of_all=999_999)).left_out == ()


def test_without_sharing_a_shared_bucket_has_its_causes_and_its_number_of_clients(tmp_path: Path) -> None:
    write_recording(tmp_path, CAUSES[Cause.SHARED_BUCKET](Chance(4)), Entity(client_id="app"))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    whole = reasons(settings, [WANTED]).found[WANTED]
    alone = reasons(settings, [WANTED], Bounds(of_sharing=0)).found[WANTED]
    assert whole.sharing is not None
    assert whole.sharing.measured > 0
    assert alone == replace(whole, sharing=None)
    assert (alone.clients, short_text(alone)) == (4, short_text(whole))
    # What the first replays about a shared bucket measure is more than one request: the second has none.
    both = reasons(settings, [FIRST, SECOND], Bounds(of_sharing=1)).found
    assert [both[one].sharing is None for one in (FIRST, SECOND)] == [False, True]


@pytest.mark.parametrize(
    ("before", "title", "cure"),
    [
        (160_000.0, "limit cut", "raise the limit again, if the cut was not meant"),
        (None, "limit set", "raise the limit or remove it, if it was not meant"),
    ],
)
def test_a_limit_where_none_was_before_was_set_and_not_cut(
    before: float | None, title: str, cure: str
) -> None:
    facts = {"limit_before_per_s": before, "limit_after_per_s": 80_000.0, "at_ms": FROM_MS}
    part = Part(Cause.LIMIT_CUT, facts, 900, 90.0, 100)
    assert (title_of(part), cure_of(part)) == (title, cure)
