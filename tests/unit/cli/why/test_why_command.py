"""`kquota why`: the parts add up in every form, names are escaped, and a wrong id is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.attribution.precision import TRIED
from kquota_spark.model.quotas.entities import Entity
from tests.support.attribution.labelled import CAUSES
from tests.support.attribution.tables import write_recording
from tests.support.chance import Chance
from tests.support.logs.replayed_captures import run

APP = Entity(client_id="app")


def _why(root: Path, *words: str) -> tuple[int, str, str]:
    config = root / "kquota.yaml"
    config.write_text(f"cluster_id: demo\ntables: {json.dumps(str(root))}\n")
    return run(["why", "--config", str(config), *words])


def _answer(root: Path, *words: str) -> dict[str, Any]:
    code, out, _ = _why(root, *words, "--output", "json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cut")
    write_recording(root, CAUSES[Cause.LIMIT_CUT](Chance(4)), APP)
    return root


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shared")
    write_recording(root, CAUSES[Cause.SHARED_BUCKET](Chance(4)), APP)
    return root


def test_a_page_has_the_cause_its_part_the_cure_and_a_waterfall(cut: Path) -> None:
    code, out, _ = _why(cut)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "produce bucket of client app"
    assert lines[1].endswith("from 2026-11-21 05:40:00 UTC, limit 65.4 kB/s on each broker")
    why = [line for line in lines if line.startswith("why ")]
    assert why == [
        "why      100 % of the delay: the limit was cut from 160 kB/s to 65.4 kB/s at 11-21 05:40:01"
    ]
    drawn = [line for line in lines if line.startswith(("without these", "+ limit cut", "= total"))]
    assert [line.split("  ")[0].strip() for line in drawn] == [
        "without these causes",
        "+ limit cut",
        "= total delay",
    ]
    assert drawn[1].rstrip().endswith("█" * 20)


def test_the_parts_of_the_rows_add_up_to_the_delay(cut: Path, shared: Path) -> None:
    for root in (cut, shared):
        answer = _answer(root)
        rows = answer["rows"]
        assert sum(row["share_ms"] for row in rows) == rows[0]["delay_by_replay_ms"]
        assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["cause"] for row in rows] == ["shared_bucket", "steady_at_the_limit"]
    [bucket] = answer["buckets"]
    assert bucket["slow_brokers"] == []  # the settings name no log topic
    for name in ("caused_ms", "suffered_ms"):
        assert sum(client[name] for client in bucket["clients"]) == rows[0]["delay_by_replay_ms"]


def test_a_shared_bucket_has_a_row_per_client_and_the_fairness_of_its_hour(shared: Path) -> None:
    _, out, _ = _why(shared)
    lines = out.splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("client "))
    assert lines[place].split() == ["client", "caused", "suffered", "to", "others"]
    clients = _answer(shared)["buckets"][0]["clients"]
    assert [line.split(" / ")[0] for line in lines[place + 1 : place + 1 + len(clients)]] == [
        client["user"] for client in clients
    ]
    assert lines[-1].startswith("fairness from 11-21 05:40:00: Jain's index ")


def test_a_violation_is_chosen_by_its_id_and_a_wrong_id_is_an_error(cut: Path) -> None:
    assert _answer(cut, "--episode", "e0")["rows"][0]["episode_id"] == "e0"
    code, _, error = _why(cut, "--episode", "e1")
    assert (code, error) == (1, "kquota: --episode e1: no such violation of a client\n")


def test_a_whole_period_is_that_of_the_options(cut: Path) -> None:
    rows = _answer(cut, "--whole", "--since", "2026-11-21T05:40:10Z", "--until", "2026-11-21T05:41:00Z")[
        "rows"
    ]
    assert (rows[0]["from"], rows[0]["to"]) == ("2026-11-21T05:40:10Z", "2026-11-21T05:41:00Z")
    assert rows[0]["episode_id"] is None


def test_without_a_violation_the_answer_is_a_sentence(cut: Path) -> None:
    code, out, _ = _why(cut, "--user", "nobody")
    assert (code, out) == (0, "no violation matches: nobody was throttled, or the time has none\n")


def test_a_violation_shows_its_cause_if_asked(cut: Path) -> None:
    config = str(cut / "kquota.yaml")
    _, out, _ = run(["violations", "--config", config, "--why", "--output", "json"])
    [row] = json.loads(out)["rows"]
    assert row["why"] == "100 % of the delay: the limit was cut from 160 kB/s to 65.4 kB/s at 11-21 05:40:01"
    assert "why" not in json.loads(run(["violations", "--config", config, "--output", "json"])[1])["rows"][0]


def test_a_violation_has_the_causes_of_why_in_json(cut: Path) -> None:
    _, out, _ = run(["violations", "--config", str(cut / "kquota.yaml"), "--why", "--output", "json"])
    [row] = json.loads(out)["rows"]
    answer = _answer(cut)["rows"]
    assert row["causes"] == [{name: each[name] for name in row["causes"][0]} for each in answer]
    first = row["causes"][0]
    assert (first["rank"], first["cause"]) == (1, "limit_cut")
    assert first["confidence"] == min(first["share_percent"] / 100, 1.0) * TRIED[Cause.LIMIT_CUT].precision
    assert set(first) == {
        "rank", "cause", "is_named", "share_percent", "share_ms", "delay_without_ms", "confidence", "sentence", "cure",
        "evidence",
    }  # fmt: skip


def test_throttled_and_explain_have_the_same_cause(cut: Path) -> None:
    config = str(cut / "kquota.yaml")
    _, out, _ = run(["throttled", "--config", config, "--output", "json"])
    assert [row["why"] for row in json.loads(out)["rows"]] == ["limit cut 100 %"]
    words = [
        "explain",
        "--user",
        "alice",
        "--client-id",
        "app",
        "--at",
        "2026-11-21T05:43:59Z",
        "--output",
        "json",
    ]
    _, out, _ = run([*words, "--config", config])
    assert json.loads(out)["why"].endswith("the limit was cut from 160 kB/s to 65.4 kB/s at 11-21 05:40:01")


def test_names_of_clients_are_escaped(tmp_path: Path) -> None:
    recording = CAUSES[Cause.SHARED_BUCKET](Chance(4))
    hostile = "\x1b[31mroot\u202e"
    records = [each.__class__(**{**_fields(each), "client": (hostile, "app")}) if each.client[0] == "user0" else each
               for each in recording.records]  # fmt: skip
    write_recording(tmp_path, recording._replace(records=records), APP)
    _, out, _ = _why(tmp_path)
    assert "\x1b" not in out
    assert "\\u202e" in out


def _fields(each: Any) -> dict[str, Any]:
    return {name: getattr(each, name) for name in each.__slots__}
