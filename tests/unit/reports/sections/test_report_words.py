"""Sentences and tiles of the report that a reader could take for more, or for less, than was found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kquota_spark.reports.pages.headline import headline
from kquota_spark.reports.pages.opening import opening
from kquota_spark.reports.parts.page_parts import Tone
from kquota_spark.reports.scope.shared_rows import Unprotected
from kquota_spark.reports.sections.limits import limits_section
from kquota_spark.reports.sections.throttled import throttled_section
from kquota_spark.reports.sections.trust import trust_section
from kquota_spark.reports.sections.unprotected import unprotected_section
from kquota_spark.reports.sections.usage import Talker, Talkers, usage_section
from tests.support.reports.drawn_report import full_report, tenant_report


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


@pytest.mark.parametrize(
    ("found", "left_out", "tile", "lead"),
    [
        (
            [("SHARED_BUCKET", "warning"), ("MIXED_IDENTIFICATION", "info")], 0, "0 findings",
            "All traffic is metered; 2 findings on shared limits.",
        ),
        # What is left out behind a finding of severity info is of that severity, so it is metered.
        ([("UNMETERED", "warning"), ("SHARED_BUCKET", "info")], 5, "1 finding", "7 findings, the gravest first."),
        # 1 + 5 that may be any
        (
            [("UNMETERED", "warning"), ("SHARED_BUCKET", "warning")], 5, "6 findings",
            "7 findings, the gravest first.",
        ),
    ],
)  # fmt: skip
def test_a_limit_that_clients_share_leaves_nothing_unprotected(
    found: list[tuple[str, str]], left_out: int, tile: str, lead: str
) -> None:
    shown = tuple(Unprotected(kind, severity, "x", "y", "z") for kind, severity in found)
    page = replace(full_report(), unprotected=shown, unprotected_left_out=left_out)
    _, tiles = headline(page)
    is_open = tile != "0 findings"
    assert (tiles[2].title, tiles[2].value) == ("Unprotected", tile)
    assert tiles[2].detail == ("none grave" if is_open else "all traffic is metered, some limits are shared")
    assert dict(opening(page).others)["without a quota"].text == (tile if is_open else "nothing")
    section = unprotected_section(page)
    assert (section.lead, section.tone) == (lead, Tone.NEAR if is_open else Tone.PLAIN)


def test_a_tenant_is_not_told_that_a_bucket_it_shares_has_no_limit_or_was_calm() -> None:
    report = tenant_report()
    calm = replace(report.heat[0], near=0, over=0, near_unthrottled=0)
    shared = replace(
        report.throttled[0],
        limit_per_s=None,
        peak_quota_used_percent=None,
        throttled_requests=None,
        episodes=0,
        shared_with=1,
    )
    page = replace(report, heat=(calm,), throttled=(shared,))
    assert (
        limits_section(page).lead
        == "You never came to 80 % of a limit. 1 bucket that you share was over the limit."
    )
    table = throttled_section(page).blocks[0].table
    assert table is not None
    texts = {column.title: cell.text for column, cell in zip(table.columns, table.rows[0], strict=True)}
    assert texts["limit on a broker"] == texts["episodes"] == texts["peak of quota"] == "-"
    assert headline(page)[1][1].detail == "of your own quota"


def test_from_jmx_alone_nothing_is_called_protected() -> None:
    report = full_report()
    sampled = replace(report.confidence, sources=("jmx",))
    page = replace(report, confidence=sampled, unprotected=(), unprotected_left_out=0)
    _, tiles = headline(page)
    assert dict(opening(page).others)["without a quota"].text == "not known from JMX"
    assert (tiles[2].value, tiles[2].tone) == ("-", Tone.PLAIN)
    assert unprotected_section(page).lead.startswith("Not known: ")
