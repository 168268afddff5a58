"""The notebooks run from top to bottom on tables of a real broker's log, and are stored without outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from nbclient.exceptions import CellExecutionError

from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.pipeline.shadow.rules import ShadowPin
from kquota_spark.store.reading import query
from tests.site.page_tables import SHADOW
from tests.support.logs.captures import KRAFT41, Capture
from tests.support.pipeline.capture_shadow import write_shadow
from tests.support.programs.executed_notebooks import NOTEBOOKS, executed
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.capture_violations import write_violations
from tests.support.tables.table_rows import DAY, second, write_table

READ, ONE_VIOLATION, WHAT_IF = NOTEBOOKS


def written(root: Path, settings: Settings, *, log: str = "") -> Path:
    """The settings as a file."""
    path = root / "kquota.yaml"
    files = f"ship: {{files: ['1={log}']}}\n" if log else ""
    path.write_text(f"cluster_id: test\ntables: {settings.tables}\n{files}", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings of the tables of kraft39, its log beside them, and a row from JMX, which has no amount."""
    root = tmp_path_factory.mktemp("kraft39")
    settings = write_capture(root, Capture("kraft39", RateConfig()))
    write_violations(settings)
    place = {
        "cluster_id": "test",
        "event_date": DAY,
        "broker_id": 1,
        "quota_type": "produce",
        "source": "jmx",
    }
    write_table(
        root, "usage", {**place, "user": "jane", "client_id": "", "second": second(0), "rate_per_s": 7e9}
    )
    bucket = {"bucket_user": "jane", "bucket_client_id": "", "rate_per_s": 7e9, "is_certain": False}
    write_table(root, "decisions", {**place, **bucket, "second": second(0)})
    return written(root, settings, log=str(root / "broker-1.log"))


def number(text: str, pattern: str) -> float:
    """The number in the one place of a text."""
    [found] = re.findall(pattern, text)
    return float(found.replace(",", ""))


def test_the_tables_are_introduced_each_with_an_answer(config: Path, tmp_path: Path) -> None:
    shown = executed(READ, config, tmp_path)
    assert "PRODUCE" in shown["code-requests"] and "requests_in_points" in shown["code-without"]
    assert "users/" in shown["code-rules"]
    assert "burn rate, 1 h" in shown["code-budgets"] and "alice" in shown["code-budgets"]
    # Who is known from JMX alone has a rate and no amount, and stands in the chart with that.
    assert "produce jane" in shown["code-usage"] and "'dash': 'dash'" in shown["code-rate"]


def test_one_violation_is_explained_from_its_line_to_the_throttle_of_the_broker(
    config: Path, tmp_path: Path
) -> None:
    shown = executed(ONE_VIOLATION, config, tmp_path)
    assert "Completed request:{" in shown["code-line"]
    total, window_s, rate = (
        number(shown["code-throttle"], pattern)
        for pattern in (r"= ([\d,]+) B /", r"B / ([\d.]+) s", r"s = ([\d,.]+) B/s")
    )
    limit = number(shown["code-rule"], r"limit ([\d,]+) B/s")
    replay_ms, broker_ms = (
        number(shown["code-throttle"], pattern) for pattern in (r"ms = ([\d,]+) ms", r"logged ([\d,]+) ms")
    )
    assert rate == pytest.approx(total / window_s, abs=0.05) and rate > limit
    # KIP-13, with the numbers on the page.
    assert replay_ms == round((total / window_s - limit) / limit * window_s * 1_000)
    assert abs(replay_ms - broker_ms) <= 1
    assert number(shown["code-manager"], r"by ([\d,]+) ms") == replay_ms
    counts = re.findall(r"\d+", shown["code-close"])
    assert len(counts) == 2 and counts[0] == counts[1]
    assert "agrees" in shown["code-agreement"] and "false" not in shown["code-agreement"]
    assert "'type': 'waterfall'" in shown["code-why"]


def test_without_the_log_the_explanation_takes_the_numbers_of_the_table(config: Path, tmp_path: Path) -> None:
    bare = tmp_path / "kquota.yaml"
    bare.write_text(re.sub(r"ship: .*\n", "", config.read_text(encoding="utf-8")), encoding="utf-8")
    shown = executed(ONE_VIOLATION, bare, tmp_path)
    assert "not on this machine" in shown["code-line"] and "= " not in shown["code-bytes"]
    assert "the broker logged" in shown["code-throttle"]


def test_the_identical_file_changes_nothing_and_a_higher_limit_throttles_less(
    config: Path, tmp_path: Path
) -> None:
    shown = executed(WHAT_IF, config, tmp_path)
    assert "not a millisecond of difference" in shown["code-identical"]
    before_s, open_s, closed_s = (
        number(shown["code-slopes"], pattern)
        for pattern in (
            r"total delay ([\d,.]+) s before",
            r"open loop ([\d,.]+) s",
            r"closed loop ([\d,.]+) s",
        )
    )
    # Under a higher limit requests of the closed loop come earlier, and meet more of the limit.
    assert 0 < open_s < closed_s < before_s
    # A bucket is a line from the least to the most of three marks.
    names = re.findall(r"'name': '([^']+)'", shown["code-slopes"])
    assert names == ["before, by brokers", "after, open loop", "after, closed loop"]
    assert "no shadow was judged" in shown["code-shadow"]
    assert "before and after: 1, measured within the bound: 0; without: 20" in shown["code-impact"]


def test_the_measured_delay_of_an_edit_is_drawn_beside_the_predicted_one(tmp_path: Path) -> None:
    settings = write_capture(tmp_path, KRAFT41)
    edit = {"cluster_id": "test", "entity": "users/alice", "key": "producer_byte_rate"}
    values = {"previous_value": 2_000.0, "value": 1_000.0, "source": "zookeeper"}
    write_table(tmp_path, "quota_changes", {**edit, **values, "changed_at": second(0)})
    # Of a finished edit the table has the figures, and nothing is judged again.
    figures = {"window_s": 60, "buckets": 1, "before_ms": 0, "predicted_ms": 9_000, "low_ms": 5_000,
               "high_ms": 12_000, "measured_ms": 10_000, "method": "closed loop"}  # fmt: skip
    of_edit = {"event_date": DAY, "at": second(0), "value_before": 2_000.0, "value_after": 1_000.0}
    write_table(tmp_path, "edit_impact", {**edit, **of_edit, **figures})
    shown = executed(WHAT_IF, written(tmp_path, settings), tmp_path)
    assert "before and after: 1, measured within the bound: 1; without: 9" in shown["code-impact"]


def test_the_shadow_is_drawn_with_both_ends_of_each_bucket(tmp_path: Path) -> None:
    settings = write_capture(tmp_path, KRAFT41)
    write_shadow(settings, KRAFT41, SHADOW, ShadowPin("proposal", "v1", 0))
    shown = executed(WHAT_IF, written(tmp_path, settings), tmp_path)["code-shadow"]
    assert "Total delay in force and under the shadow proposal" in shown
    assert "alice / etl (produce): throttled" in shown or "alice / etl (produce): more" in shown
    before_s, after_s = (number(shown, pattern) for pattern in (r"differ: ([\d,.]+) s", r"-> ([\d,.]+) s"))
    assert before_s != after_s


def test_tables_without_rows_are_read_and_nothing_is_explained(tmp_path: Path) -> None:
    for name in ("requests", "usage", "decisions", "violations", "quota_rules"):
        write_table(tmp_path / "tables", name)
    config = written(tmp_path, Settings(tables=str(tmp_path / "tables")))
    executed(READ, config, tmp_path)
    with pytest.raises(CellExecutionError, match="no produce was throttled in these tables"):
        executed(ONE_VIOLATION, config, tmp_path)


def test_the_fixture_has_rows_from_jmx(config: Path) -> None:
    tables = Settings(cluster_id="test", tables=str(config.parent))
    assert query(tables, ["usage"], "select count(*) from usage where amount is null").rows == [(1,)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stored_without_outputs_and_with_names_for_its_cells(path: Path) -> None:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    cells = notebook["cells"]
    assert not [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")]
    # Named by hand: an editor that made them anew would change them with every save.
    assert [cell["id"] for cell in cells if not re.fullmatch(r"[a-z]+(-[a-z]+)*", cell["id"])] == []
    assert len({cell["id"] for cell in cells}) == len(cells) > 10
    assert not [cell["id"] for cell in cells if cell["metadata"]]
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
