"""Share consumers on the reading surfaces, over the tables of a real log of Kafka 4.3."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.shared_rows import Trust
from tests.support.logs.captures import KRAFT43_SHARE
from tests.support.programs.command_output import as_json, shown
from tests.support.tables.capture_tables import write_capture

FROM_MS, TO_MS = 1_795_371_375_000, 1_795_371_580_000
# Of the log's SHARE_FETCH lines, by client id: those without a throttle.
UNSIZED = {"sharer": 38, "mixed": 54}
# All throttles of its FETCH and SHARE_FETCH lines, ms: 15,206 in 4 share fetches; 42,053 in 8 fetches and 15,138 in 8
# share fetches; 39,756 in 5 fetches.
DELAY_MS = {"sharer": 15_206, "mixed": 57_191, "c1": 39_756}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shared")
    settings = write_capture(root, KRAFT43_SHARE)
    (root / "kquota.yaml").write_text(
        f"tables: {root}\ncluster_id: {settings.cluster_id}\n", encoding="utf-8"
    )
    return root


@pytest.fixture(scope="module")
def config(root: Path) -> tuple[str, str]:
    return "--config", str(root / "kquota.yaml")


def test_usage_counts_them_and_marks_amounts_as_a_least(config: tuple[str, str]) -> None:
    rows = as_json("usage", "--type", "fetch", *config)["rows"]
    assert {row["client_id"]: row["unsized_requests"] for row in rows} == {**UNSIZED, "c1": 0}
    assert {row["client_id"]: row["delay_ms"] for row in rows} == DELAY_MS
    text = shown("usage", "--type", "fetch", *config)
    assert text.count("≥ ") == 2
    assert "\n≥: without 92 requests, whose size is not in the log" in text  # 38 + 54


def test_decisions_have_their_throttles_and_are_not_certain(config: tuple[str, str]) -> None:
    rows = as_json("decisions", "--type", "fetch", "--limit", "0", *config)["rows"]
    found = {
        name: sum(row["delay_ms"] for row in rows if row["bucket_client_id"] == name) for name in DELAY_MS
    }
    assert found == DELAY_MS
    assert not any(row["is_certain"] for row in rows if row["unsized_requests"] and row["limit_per_s"])


def test_findings_name_the_clients(config: tuple[str, str]) -> None:
    rows = as_json("findings", "--kind", "SHARE_FETCH", "--evidence", *config)["rows"]
    assert [(row["severity"], row["subject"]) for row in rows] == [
        ("warning", "user ANONYMOUS, client id mixed"),
        ("warning", "user ANONYMOUS, client id sharer"),
    ]
    assert rows[1]["finding"].startswith(
        "sent 38 fetches without a size in the log: as a share consumer, in an old format, or in lines that could not "
        "be read; consumer_byte_rate counts them"
    )
    assert rows[1]["evidence"][0]["total_delay_ms"] == 15_206


def test_the_command_of_the_advice_names_the_settings_of_the_cluster(
    root: Path, config: tuple[str, str]
) -> None:
    rows = as_json("findings", "--kind", "SHARE_FETCH", *config)["rows"]
    commands = [row["advice"].partition("(")[2].partition(")")[0] for row in rows]
    assert commands == [f"kquota collect jmx --config {root}/kquota.yaml"] * 2


def test_explain_says_what_is_missing(config: tuple[str, str]) -> None:
    asked = ("explain", "--type", "fetch", "--user", "ANONYMOUS", "--client-id")
    missing = "the log has no size for "
    (note,) = [one for one in as_json(*asked, "mixed", *config)["notes"] if one.startswith(missing)]
    assert note == "the log has no size for 54 requests of that hour: verdicts near them are uncertain"
    assert not [one for one in as_json(*asked, "c1", *config)["notes"] if one.startswith(missing)]


def test_the_report_is_to_be_read_with_care(root: Path) -> None:
    settings = Settings(cluster_id="test", tables=str(root))
    told = gather_report(settings, Period(FROM_MS, TO_MS), made_at_ms=TO_MS, top=10).confidence
    assert told.trust is Trust.WITH_CARE
    assert (
        "92 requests have no size in the log: amounts and rates of their buckets are without them"
        in told.reasons
    )
