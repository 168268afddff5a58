"""The file of `quotas.shadow`: what makes a new version, and what a broken file stops (nothing)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kquota_spark.checkpoints.noted_pins import shadow_in_force
from kquota_spark.checkpoints.shadow_file import ShadowFile, canonical, kept_values, version_of
from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.exchange.registry import FORMATS
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from kquota_spark.pipeline.shadow.rules import ShadowPin

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
QUOTAS: QuotaSet = {Entity("alice"): {PRODUCE: 100.0, FETCH: 200.0}, Entity(DEFAULT, None): {PRODUCE: 50.0}}


class _Shadow:
    """A file that the driver follows, and the lines that it prints."""

    def __init__(self, root: Path) -> None:
        self.path, self.lines = root / "proposal.yaml", list[str]()
        quotas = Quotas(source="file", shadow=str(self.path))
        self.settings = Settings(checkpoints=str(root / "checkpoints"), quotas=quotas)
        self.file = ShadowFile(self.settings, self.lines.append)

    def write(self, text: str) -> None:
        """Replace the file, as an editor does: the new one has another inode."""
        new = self.path.with_suffix(".new")
        new.write_text(text, "utf-8")
        new.replace(self.path)


@pytest.fixture
def shadow(tmp_path: Path) -> _Shadow:
    return _Shadow(tmp_path)


def test_all_formats_of_the_same_quotas_are_one_version(shadow: _Shadow) -> None:
    found = {}
    for name in ("declared", "kfk", "rpk", "kafka-configs"):
        shadow.write(FORMATS[name].write(QUOTAS))
        pin = ShadowFile(shadow.settings, shadow.lines.append).look(0)
        assert pin is not None
        found[name] = pin.version
    assert set(found.values()) == {version_of(canonical(QUOTAS))}
    assert kept_values(shadow.settings, version_of(canonical(QUOTAS))) == QUOTAS


def test_a_limit_of_an_ip_is_no_part_of_the_version() -> None:
    """The request log does not show connections that a broker refuses."""
    with_ip: QuotaSet = {**QUOTAS, IpEntity("10.0.0.1"): {IpQuotaKey.CONNECTION_CREATION_RATE: 5.0}}
    assert canonical(with_ip) == canonical(QUOTAS)


def test_a_comment_begins_no_version_and_another_value_does(shadow: _Shadow) -> None:
    shadow.write("- {user: alice, type: producer_byte_rate, value: 100}\n")
    first = shadow.file.look(1_000)
    shadow.write("# as agreed\n- {user: alice, type: producer_byte_rate, value: 100.0}\n")
    assert shadow.file.look(2_000) == first
    shadow.write("- {user: alice, type: producer_byte_rate, value: 101}\n")
    second = shadow.file.look(3_000)
    assert first is not None and second is not None
    assert (first.name, first.from_ms, second.from_ms) == ("proposal", 1_000, 3_000)
    assert first.version != second.version
    assert shadow.lines == [
        f"quotas.shadow: judging proposal, version {first.version}, beside the quotas in force",
        f"quotas.shadow: judging proposal, version {second.version}, beside the quotas in force",
    ]


def test_a_broken_file_prints_one_line_and_the_last_version_stays(shadow: _Shadow) -> None:
    shadow.write("- {user: alice, type: producer_byte_rate, value: 100}\n")
    good = shadow.file.look(1_000)
    assert good is not None
    del shadow.lines[:]
    shadow.write("- {user: alice, type: producer_byte_rate, value: -1}\n")
    assert [shadow.file.look(time_ms) for time_ms in (2_000, 3_000, 4_000)] == [good] * 3
    [line] = shadow.lines
    assert line.startswith(f"warning: quotas.shadow: {shadow.path}: ")
    assert line.endswith(f": mend the file; version {good.version} stays in force")
    shadow.path.unlink()
    assert [shadow.file.look(time_ms) for time_ms in (5_000, 6_000)] == [good] * 2
    assert len(shadow.lines) == 2
    # After a restart the note has the version, and its copy the quotas.
    again = ShadowFile(shadow.settings, shadow.lines.append)
    again.pin = good
    assert again.look(9_000) == good
    assert kept_values(shadow.settings, good.version) == {Entity("alice"): {PRODUCE: 100.0}}


def test_a_file_that_was_never_good_gives_no_shadow(shadow: _Shadow) -> None:
    assert shadow.file.look(0) is None
    [line] = shadow.lines
    assert line.endswith("cannot be read: No such file or directory: mend the file; no shadow until then")


def test_a_damaged_copy_is_refused(shadow: _Shadow) -> None:
    shadow.write("- {user: alice, type: producer_byte_rate, value: 100}\n")
    pin = shadow.file.look(0)
    assert pin is not None
    copy = Path(shadow.settings.checkpoints) / "log.shadow" / f"{pin.version}.json"
    copy.write_bytes(copy.read_bytes().replace(b"100", b"900"))
    with pytest.raises(UserError, match="missing or damaged"):
        kept_values(shadow.settings, pin.version)


def test_another_name_begins_no_version(shadow: _Shadow) -> None:
    shadow.write("- {user: alice, type: producer_byte_rate, value: 100}\n")
    pin = shadow.file.look(1_000)
    named = replace(shadow.settings, quotas=replace(shadow.settings.quotas, shadow_name="lower"))
    file = ShadowFile(named, shadow.lines.append)
    file.pin = pin
    assert pin is not None
    assert file.look(2_000) == ShadowPin("lower", pin.version, 1_000)


def test_before_the_first_micro_batch_no_version_is_in_force(shadow: _Shadow) -> None:
    assert shadow_in_force(shadow.settings) is None
