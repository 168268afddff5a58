"""Total delay and throttled requests of a bucket: the sums over the broker's own lines, on every surface the same."""

from __future__ import annotations

from typing import Any

import pytest

from kquota_spark.audit.violations.rebuild import rebuild_all_violations
from kquota_spark.store.creation import create_tables
from kquota_spark.store.reading import open_tables
from tests.support.logs.captures import KRAFT43_SHARE, ZK39_PLAIN
from tests.support.reports.harm_surfaces import (
    VIOLATED,
    Harm,
    of_decisions,
    of_lines,
    of_prometheus,
    of_report,
    of_timeline,
    of_tree,
    of_violations,
    over_brokers,
    throttled,
)
from tests.support.tables.capture_tables import write_capture


@pytest.fixture(scope="module", params=[ZK39_PLAIN, KRAFT43_SHARE], ids=lambda capture: capture.name)
def tables(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    settings = write_capture(tmp_path_factory.mktemp("captured"), request.param)
    create_tables(settings)
    rebuild_all_violations(settings)
    with open_tables(settings, "requests", "usage", "decisions", "violations") as opened:
        yield settings, opened


@pytest.fixture
def lines(tables: Any) -> Harm:
    return of_lines(tables[1])


def test_decisions(tables: Any, lines: Harm) -> None:
    assert of_decisions(tables[1]) == lines


def test_prometheus(tables: Any, lines: Harm) -> None:
    assert of_prometheus(tables[1], "test") == lines


def test_report(tables: Any, lines: Harm) -> None:
    assert of_report(*tables) == over_brokers(lines)


def test_timeline(tables: Any, lines: Harm) -> None:
    assert of_timeline(tables[1], lines) == {bucket: delay_ms for bucket, (delay_ms, _) in lines.items()}


def test_tree(tables: Any, lines: Harm) -> None:
    assert of_tree(tables[1], "test") == sum(delay_ms for delay_ms, _ in lines.values())


def test_violations_have_the_sums_of_their_seconds_by_the_broker(tables: Any) -> None:
    rows = tables[1].query(VIOLATED).rows
    assert of_violations(tables[1]) == throttled(rows)
    # The replay's sums are others, so that they cannot have been taken for the broker's.
    assert sum(row[4] for row in rows) != sum(row[6] for row in rows)
