"""Causes of a report's worst buckets: within the bounds, and with the number of buckets that were left out."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.report_scope import open_scope
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.sections.throttled import throttled_buckets
from kquota_spark.reports.why.keeping import KeptCauses
from kquota_spark.reports.why.of_scope import left_out_text, reasons_of
from kquota_spark.reports.why.reasons import Bounds
from kquota_spark.store.reading import Tables
from tests.support.attribution.labelled import CAUSES
from tests.support.attribution.simulated import FROM_MS, TO_MS, Recording
from tests.support.attribution.tables import write_recording
from tests.support.chance import Chance


def _renamed(recording: Recording, client_id: str) -> Recording:
    records = [
        each.__class__(
            **{name: getattr(each, name) for name in each.__slots__} | {"client": (each.client[0], client_id)}
        )
        for each in recording.records
    ]
    return recording._replace(records=records)


def test_the_bucket_with_the_most_delay_has_a_cause_and_the_others_are_counted(tmp_path: Path) -> None:
    recording = CAUSES[Cause.NEW_CLIENT](Chance(4))
    write_recording(tmp_path, recording, Entity(client_id="app"))
    other = _renamed(CAUSES[Cause.STEADY](Chance(4)), "etl")
    write_recording(tmp_path, other, Entity(client_id="etl"))
    with Tables(Settings(cluster_id="demo", tables=str(tmp_path))) as tables:
        settings = Settings(cluster_id="demo", tables=str(tmp_path))
        scope = open_scope(tables, settings, Period(FROM_MS, TO_MS), tenant=None, top=20)
        throttled = throttled_buckets(scope).shown
        all_of_them, first = reasons_of(scope, throttled), reasons_of(scope, throttled, Bounds(of_all=0))
    worst = max(throttled, key=lambda one: one.delay_ms).bucket
    assert all_of_them.left_out == 0
    assert {bucket: found.attribution.main for bucket, found in all_of_them.found.items()} == {
        BucketName("produce", "", "app"): Cause.NEW_CLIENT,
        BucketName("produce", "", "etl"): Cause.STEADY,
    }
    assert first.found == {worst: all_of_them.found[worst]}
    assert first.left_out == 1


def test_kept_causes_of_the_worst_violation_are_taken_when_the_requests_are_gone(tmp_path: Path) -> None:
    write_recording(tmp_path, CAUSES[Cause.NEW_CLIENT](Chance(4)), Entity(client_id="app"))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    bucket = BucketName("produce", "", "app")

    def main_causes() -> dict[BucketName, Cause | None]:
        with Tables(settings) as tables:
            scope = open_scope(tables, settings, Period(FROM_MS - 5_000, TO_MS + 5_000), tenant=None, top=20)
            found = reasons_of(scope, throttled_buckets(scope).shown).found
        return {bucket: one.attribution.main for bucket, one in found.items()}

    assert KeptCauses()(settings, date(2026, 11, 21)) == 1
    DeltaTable(f"{tmp_path}/usage").delete()
    assert main_causes() == {bucket: Cause.NEW_CLIENT}
    DeltaTable(f"{tmp_path}/causes").delete()
    assert main_causes() == {}


@pytest.mark.parametrize(
    ("count", "beginning"),
    [(1, "1 bucket has no cause by replay"), (2_000, "2,000 buckets have no cause by replay")],
)
def test_one_line_counts_what_was_left_out_with_the_bounds_and_the_way_to_the_rest(
    count: int, beginning: str
) -> None:
    assert left_out_text(count, "bucket", 20) == (
        f"{beginning}: at most 20 buckets with 100,000 requests together are replayed, most total delay first; "
        "kquota why explains any other"
    )
    assert left_out_text(0, "bucket", 20) == ""
