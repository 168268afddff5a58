"""The kill switch is off only where that is sure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Frozen, Switch
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.errors import UserError
from tests.support.enforcement.enforcement_ports_contract import SWITCH_CLAIMS
from tests.support.programs.s3_server import keys, s3_server

FROZEN = Frozen(1_795_310_832_702, "ann", "what is it doing?")


def local(tmp_path: Path, cluster_id: str = "prod") -> Settings:
    (tmp_path / "tables").mkdir(exist_ok=True)
    return Settings(cluster_id=cluster_id, tables=str(tmp_path / "tables"))


def on_s3(endpoint: str) -> Settings:
    options = {
        "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
    }  # fmt: skip
    return Settings(cluster_id="prod", tables="s3a://lake/kquota/tables", storage_options=options)


@pytest.mark.parametrize("claim", SWITCH_CLAIMS)
def test_the_contract(claim: Callable[[Switch, Switch], None], tmp_path: Path) -> None:
    claim(FreezeSwitch(local(tmp_path)), FreezeSwitch(local(tmp_path)))


@pytest.mark.parametrize("claim", SWITCH_CLAIMS)
def test_the_contract_on_s3(claim: Callable[[Switch, Switch], None]) -> None:
    with s3_server() as endpoint:
        settings = on_s3(endpoint)
        claim(FreezeSwitch(settings), FreezeSwitch(settings))
        FreezeSwitch(settings).freeze(FROZEN)
        assert "kquota/tables/_kquota/frozen-prod.json" in keys(endpoint, "lake")


def test_clusters_are_frozen_one_by_one(tmp_path: Path) -> None:
    FreezeSwitch(local(tmp_path, "a/../b")).freeze(FROZEN)
    assert [path.name for path in (tmp_path / "tables" / "_kquota").iterdir()] == ["frozen-a%2F..%2Fb.json"]
    assert FreezeSwitch(local(tmp_path, "a/../b")).frozen() == FROZEN
    assert FreezeSwitch(local(tmp_path, "a")).frozen() is None


@pytest.mark.parametrize(
    "data",
    [b"", b"[" * 90_000, b"{", b"[]", b"null", b"\xff", b'{"since_ms": "now", "actor": "a", "reason": "b"}'],
)
def test_what_cannot_be_read_counts_as_on(data: bytes, tmp_path: Path) -> None:
    switch = FreezeSwitch(local(tmp_path))
    switch.freeze(FROZEN)
    Path(switch.where).write_bytes(data)
    found = switch.frozen()
    assert found is not None
    assert (found.since_ms, found.actor) == (0, "unknown")
    assert found.reason.startswith(f"{switch.where} cannot be read (")
    switch.unfreeze()
    assert switch.frozen() is None


def test_where_the_tables_are_missing_or_away_it_counts_as_on(tmp_path: Path) -> None:
    settings = local(tmp_path)
    (tmp_path / "tables").rmdir()
    found = FreezeSwitch(settings).frozen()
    assert found is not None and "No such file or directory" in found.reason
    with s3_server() as endpoint:
        away = FreezeSwitch(on_s3(endpoint))
        assert away.frozen() is None
    assert away.frozen() is not None


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    switch = FreezeSwitch(local(tmp_path))
    (tmp_path / "tables" / "_kquota").write_text("a file")
    with pytest.raises(UserError, match=r"frozen-prod\.json cannot be written: "):
        switch.freeze(FROZEN)
    assert switch.frozen() is not None
