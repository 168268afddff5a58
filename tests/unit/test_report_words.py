"""Sentences and tiles of the report that a reader could take for more, or for less, than was found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kquota_spark.reports.audit_report import Talker, Talkers, Unprotected
from kquota_spark.reports.sections.headline import headline
from kquota_spark.reports.sections.parts import Tone
from kquota_spark.reports.sections.trust import trust_section
from kquota_spark.reports.sections.usage import usage_section
from tests.unit.drawn_report import full_report


@pytest.mark.parametrize(("lag_ms", "tone"), [(300_000, Tone.PLAIN), (300_001, Tone.NEAR)])
def test_the_tile_of_the_lag_is_marked_where_the_lag_speaks_against_the_page(lag_ms: int, tone: Tone) -> None:
    report = full_report()
    section = trust_section(replace(report, confidence=replace(report.confidence, lag_ms=lag_ms)))
    assert [tile.tone for tile in section.tiles if tile.title == "Lag"] == [tone]


def test_the_amount_of_topic_changes_is_partitions() -> None:
    # One request that creates a topic of six partitions is charged six.
    talker = Talker("ops", "admin", "controller_mutation", 6, 100.0, 1, 0.1, 6.0, 0)
    report = replace(full_report(), talkers=(Talkers("controller_mutation", 6, (talker,), 0, 0),))
    assert usage_section(report).lead == "6 partitions changed, most by ops / admin (100 %)."


@pytest.mark.parametrize(
    ("severities", "left_out", "detail"),
    [
        (("warning",), 0, "none grave"),
        (("high", "warning"), 5, "1 grave"),
        (("high", "high"), 5, "at least 2 grave"),
    ],
)
def test_grave_findings_that_are_not_shown_are_not_denied(
    severities: tuple[str, ...], left_out: int, detail: str
) -> None:
    found = tuple(Unprotected("UNMETERED", severity, "x", "y", "z") for severity in severities)
    _, tiles = headline(replace(full_report(), unprotected=found, unprotected_left_out=left_out))
    assert tiles[2].detail == detail
