"""Through when tables are closed, by what each query has read; a restatement of anything newer is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.closed import closed_through_ms
from kquota_spark.io.restate import require_closed
from tests.support.tables.table_rows import T0_MS, decision, request, usage, write_table


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """usage through second 3 and decisions through second 2, a commit each second; requests of that day."""
    made = Settings(tables=str(tmp_path / "tables"), checkpoints=str(tmp_path / "checkpoints"))
    write_table(Path(made.tables), "requests", request(0))
    for name, make, seconds in (("usage", usage, 4), ("decisions", decision, 3)):
        write_table(Path(made.tables), name)
        for second in range(seconds):
            write_table(Path(made.tables), name, make(second))
    return made


def read(settings: Settings, hop: str, below: int) -> None:
    root = Path(settings.checkpoints) / hop
    for directory in ("offsets", "commits"):
        (root / directory).mkdir(parents=True, exist_ok=True)
        (root / directory / "0").write_text(f"v1\n{{}}\n{json.dumps({'reservoirVersion': below})}", "utf-8")


def test_what_judge_has_read_of_usage_is_closed(settings: Settings) -> None:
    # JUDGE has read versions 0 (empty) to 3: usage through second 2.
    read(settings, "judge", 4)
    assert closed_through_ms(settings) == T0_MS + 3_000
    read(settings, "judge", 2)
    assert closed_through_ms(settings) == T0_MS + 1_000


def test_a_query_that_has_read_nothing_leaves_everything_open(settings: Settings) -> None:
    read(settings, "judge", 1)
    assert closed_through_ms(settings) is None
    read(settings, "judge", 0)
    assert closed_through_ms(settings) is None


def test_without_checkpoints_the_tables_count(settings: Settings) -> None:
    assert closed_through_ms(settings) == T0_MS + 3_000


def test_a_damaged_checkpoint_is_said_in_a_line(settings: Settings) -> None:
    read(settings, "judge", 4)
    (Path(settings.checkpoints) / "judge" / "offsets" / "0").write_text("v1", "utf-8")
    with pytest.raises(UserError, match=r"^checkpoint .*/judge cannot be read: it is cut off$"):
        closed_through_ms(settings)


def test_an_open_stretch_is_refused(settings: Settings, tmp_path: Path) -> None:
    assert require_closed(settings, T0_MS, T0_MS + 3_000) == T0_MS + 3_000
    with pytest.raises(
        UserError,
        match=r"^seconds from 2026-11-21 05:40:03 UTC on are open, the audit may still write them: restate up to",
    ):
        require_closed(settings, T0_MS, T0_MS + 3_001)
    with pytest.raises(UserError, match=r"^nothing to restate: .* is not after "):
        require_closed(settings, T0_MS, T0_MS)
    for name in ("usage", "decisions"):
        write_table(tmp_path / "empty", name)
    empty = Settings(tables=str(tmp_path / "empty"), checkpoints=settings.checkpoints)
    with pytest.raises(UserError, match=r"^nothing to restate: the audit has not judged a second yet$"):
        require_closed(empty, T0_MS, T0_MS + 1_000)


def test_a_stretch_whose_requests_are_gone_is_refused(settings: Settings) -> None:
    # They begin on 2026-11-21: what `usage` has of the day before could not be made again.
    day_before_ms = T0_MS - 86_400_000
    with pytest.raises(UserError, match=r"^table requests begins with 2026-11-21, and rows before it would"):
        require_closed(settings, day_before_ms, T0_MS)
    assert require_closed(settings, T0_MS - 20_000_000, T0_MS) == T0_MS + 3_000
