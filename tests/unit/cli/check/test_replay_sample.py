"""`kquota replay --sample`: the bundled log of a real broker, replayed alike in every place."""

from __future__ import annotations

import gzip
import tomllib
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from tests.support.logs.replayed_captures import found, run
from tests.support.places import DATA, ROOT

PACKAGE = ROOT / "kquota_spark"
SAMPLES = PACKAGE / "samples"


def test_the_replay_of_the_sample_has_the_throttles_of_the_broker() -> None:
    produce = found(["replay", "--sample"])["by_type"]["produce"]
    counts = (
        "requests_judged",
        "throttled_by_broker",
        "throttled_by_model",
        "false_positive",
        "false_negative",
    )
    assert [produce[name] for name in counts] == [4_472, 1_028, 1_028, 0, 0]


def test_the_settings_of_the_working_directory_do_not_change_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = found(["replay", "--sample"])
    (tmp_path / "conf").mkdir()
    # An older ring and other windows: with them every verdict near a limit comes out differently.
    (tmp_path / "conf" / "kquota.yaml").write_text(
        "broker: {version: '3.7', quota_window_num: 2, quota_window_size_seconds: 30}\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    assert found(["replay", "--sample"]) == expected


def test_the_sample_is_the_beginning_of_a_capture_with_its_quotas() -> None:
    sample = gzip.decompress((SAMPLES / "broker-1.kafka-request.log.gz").read_bytes())
    whole = gzip.decompress((DATA / "kraft41" / "broker-1.kafka-request.log.gz").read_bytes())
    assert sample.count(b"\n") == 5_000 and whole.startswith(sample)
    assert (SAMPLES / "quotas.yaml").read_bytes() == (DATA / "kraft41" / "quotas.yaml").read_bytes()


def test_log_and_quotas_of_the_sample_have_at_most_200_kb() -> None:
    assert sum(path.stat().st_size for path in SAMPLES.iterdir()) <= 200_000


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["broker-1.log"], "LOG"),
        (["--quotas", "quotas.yaml"], "--quotas"),
        (["broker-1.log", "--bootstrap-server", "localhost:9092"], "LOG and --bootstrap-server"),
    ],
)
def test_the_sample_is_refused_with_another_source(arguments: list[str], refused: str) -> None:
    assert run(["replay", "--sample", *arguments]) == (
        1,
        "",
        f"kquota: --sample: not with {refused}, the sample has its own log and quotas\n",
    )


def test_without_a_log_the_sample_is_named() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replay"])
    assert ended.value.code == 2


def test_every_file_that_a_command_reads_is_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["kquota_spark"]
    packed = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    left_out = {path for path in files - packed if path.suffix not in {".py", ".png", ".svg"}}
    assert {path.relative_to(PACKAGE).as_posix() for path in left_out} == set()
