"""The check of the shadow quotas in `kquota doctor` and `kquota status`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from kquota_spark.checkpoints.shadow_file import ShadowFile
from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.doctor.shadow_checks import shadow_checks
from kquota_spark.process.check import Status

GOOD = "- {user: alice, type: producer_byte_rate, value: 100}\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """An audit that judges by the file in its present form, since 2026-11-21 05:40:00."""
    file = tmp_path / "proposal.yaml"
    file.write_text(GOOD, "utf-8")
    settings = Settings(
        checkpoints=str(tmp_path / "checkpoints"), quotas=Quotas(source="file", shadow=str(file))
    )
    pin = ShadowFile(settings, lambda _: None).look(1_795_239_600_000)
    note: list[object] = [["q", 3], {}, pin]
    (tmp_path / "checkpoints" / "log.pinned.json").write_bytes(msgspec.json.encode(note))
    return settings


def _found(settings: Settings) -> tuple[Status, str, str]:
    [check] = shadow_checks(settings)
    return check.status, check.evidence, check.advice


def test_without_a_shadow_there_is_no_check() -> None:
    assert shadow_checks(Settings()) == []


def test_a_file_that_is_in_force_is_ok(settings: Settings) -> None:
    # SHA-256 of {"users/alice":{"producer_byte_rate":100.0}} begins with 677a44536445.
    evidence = "proposal, version 677a44536445 since 2026-11-21 05:40:00 UTC"
    assert _found(settings) == (Status.OK, evidence, "")


def test_a_broken_file_names_its_problem_and_the_version_in_force(settings: Settings) -> None:
    Path(settings.quotas.shadow).write_text(GOOD.replace("100", "-1"), "utf-8")
    status, evidence, advice = _found(settings)
    assert status is Status.WARN
    assert "expected a whole number of bytes per second, 0 or more" in evidence
    assert evidence.endswith("is in force since 2026-11-21 05:40:00 UTC")
    assert advice == "mend the file of quotas.shadow"


def test_a_changed_file_waits_for_the_next_micro_batch(settings: Settings) -> None:
    Path(settings.quotas.shadow).write_text(GOOD.replace("100", "101"), "utf-8")
    status, evidence, _ = _found(settings)
    assert status is Status.WARN
    assert evidence.startswith("the file is version ")


def test_before_the_first_micro_batch_the_audit_has_to_start(settings: Settings, tmp_path: Path) -> None:
    elsewhere = replace(settings, checkpoints=str(tmp_path / "others"))
    status, evidence, advice = _found(elsewhere)
    assert status is Status.WARN
    assert evidence.endswith("no micro-batch has judged by it yet")
    assert advice.startswith("start the audit (kquota audit) again")
