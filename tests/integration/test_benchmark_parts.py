"""Each part of the benchmark that needs Kafka, with sizes of seconds: it runs to its end, and its tables add up."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.bench import preloaded, slopes
from tests.bench.job import Place, bench_place
from tests.bench.preloaded import Size
from tests.bench.runs import growth, live, request_log, scale, soak, throughput
from tests.bench.runs.shadow import __main__ as shadow
from tests.bench.runs.stages import Changed

Rows = list[dict[str, Any]]
SIZE = Size(warm_up=2_000, lines=2_000)
QUICK = "trigger: 1 s, allowed_lateness: 2 s"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """One broker for all parts; what they leave in this process is put back."""
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", os.environ.get("SPARK_HOME", ""))
        with bench_place() as found:
            yield found._replace(is_quick=True)
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def rows(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[ModuleType], Rows]:
    """Runs a part once on the shared broker."""

    def run(part: ModuleType) -> Rows:
        monkeypatch.setattr(part, "bench_place", lambda: nullcontext(place))
        monkeypatch.setattr(part, "SIZE", SIZE, raising=False)
        monkeypatch.setattr(part, "ROUNDS", 1, raising=False)
        monkeypatch.setattr(preloaded, "ROUNDS", 1)
        monkeypatch.setenv("BENCH_ROUNDS", "1")  # the floor runs in a process of its own
        assert part.main() == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]

    return run


def test_throughput_measures_a_floor_the_audit_and_a_plain_process(
    rows: Callable[[ModuleType], Rows],
) -> None:
    floor, audit, plain = rows(throughput)
    assert floor["case"] == "floor: read and parse only"
    assert (audit["case"], audit["reconciled"]) == ("whole audit, all requests, local[*]", "yes")
    assert plain["case"] == "one plain process, without Spark"
    for row in (floor, audit, plain):
        assert row["lines_per_s"]["low"] > 0
    kinds = ("jvm_us", "workers_us", "driver_us", "broker_us")
    for row, parts in ((floor, kinds), (audit, kinds), (plain, ("process_us", "broker_us"))):
        # One round: the parts are those of the whole, of the same seconds as the rate.
        assert sum(row[part] for part in parts) == pytest.approx(row["cpu_us"]["median"], rel=1e-6)
        assert row["cores"]["median"] == pytest.approx(
            row["lines_per_s"]["median"] * row["cpu_us"]["median"] / 1e6, rel=1e-3
        )
    assert min(audit["jvm_us"], audit["workers_us"], plain["process_us"]) > 0


def test_scale_runs_the_audit_on_a_node_of_a_spark_cluster(
    rows: Callable[[ModuleType], Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "NODES", scale.NODES[:1])
    [row] = rows(scale)
    assert (row["nodes"], row["to_one"], row["reconciled"]) == (1, 1.0, "yes")
    # Parsing and judging are in Python on the node.
    assert min(row["cpu_us"]["low"], row["workers_us"]) > 0


def test_soak_has_a_slope_for_each_quantity_and_draws_it(
    rows: Callable[[ModuleType], Rows], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sizes = {"BATCHES": 9, "EVERY_S": 0.5, "PICTURE": tmp_path / "soak.svg"}
    for name, value in sizes.items():
        monkeypatch.setattr(soak, name, value)
    monkeypatch.setattr(slopes, "LEAST", inf)  # a job of seconds still grows
    found = rows(soak)
    assert len(found) == 19
    assert {row["verdict"] for row in found} == {"flat"}
    assert min(row["level"] for row in found) > 0
    picture = ElementTree.parse(tmp_path / "soak.svg").getroot()
    assert len(picture.findall("{*}g")) == 19


def test_growth_measures_one_bucket_with_nearly_all_requests(
    rows: Callable[[ModuleType], Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "cases", lambda: iter([(100, 12, True)]))
    [row] = rows(growth)
    assert (row["client_ids"], row["rules"], row["requests"]) == (100, 12, "99 % in one bucket")
    assert (row["to_base"], row["reconciled"]) == (1.0, "yes")
    assert min(row["driver_gb"], row["workers_gb"], row["cpu_us"]["low"]) > 0


def test_shadow_runs_a_job_with_and_one_without_in_turns(
    rows: Callable[[ModuleType], Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that judges no shadow is a problem, so that the part ends with 1."""
    monkeypatch.setattr(shadow, "CASES", ((100, Changed.BUCKETS),))
    [row] = rows(shadow)
    assert (row["client_ids"], row["changed"], row["reconciled"]) == (100, "all, in other buckets", "yes")
    assert min(row["without_us"]["low"], row["with_us"]["low"], row["ratio"]["low"], row["load"]) > 0
    assert row["ratio"]["median"] == pytest.approx(
        row["with_us"]["median"] / row["without_us"]["median"], rel=1e-3
    )


def test_live_measures_latency_and_cores_beside_a_load(
    rows: Callable[[ModuleType], Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["live", "100", QUICK])
    for name, value in {"SETTLED_S": 0.0, "WINDOW_S": 15.0, "_WINDOWS": 1}.items():
        monkeypatch.setattr(live, name, value)
    [row] = rows(live)
    assert (row["stream"], row["lines_per_s"]) == (f"`{QUICK}`", 100)
    # A request waits for the allowed lateness at least.
    assert 2 < row["p50_s"]["low"] <= row["p99_s"]["high"]
    assert row["cores"]["low"] > 0


def test_request_log_measures_a_broker_with_its_logger_off_and_on(
    rows: Callable[[ModuleType], Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"PRODUCED_PER_S": 200, "ROUND_S": 2.0, "WARM_UP_S": 1.0, "_SETTLE_S": 1, "_ROUNDS": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(request_log, name, value)
    off, on, difference = rows(request_log)
    assert [row["logger"] for row in (off, on, difference)] == ["WARN", "DEBUG", "difference, round by round"]
    assert min(row["requests_per_s"]["low"] for row in (off, on)) > 0
    assert (off["log_kb_per_s"]["high"], on["log_kb_per_s"]["low"] > 0) == (0, True)
