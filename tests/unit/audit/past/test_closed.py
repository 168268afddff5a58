"""Through when tables are closed, by what has been judged; a restatement of anything newer is refused."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from kquota_spark.audit.past.closed import closed_through_ms, not_folded_from_ms
from kquota_spark.audit.past.restate import require_closed
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from tests.support.tables.table_rows import DAY, T0_MS, decision, heartbeat, request, usage, write_table


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """usage through second 3 and decisions through second 2, a commit each second; requests of that day."""
    made = Settings(
        cluster_id="demo", tables=str(tmp_path / "tables"), checkpoints=str(tmp_path / "checkpoints")
    )
    write_table(Path(made.tables), "requests", request(0))
    for name, make, seconds in (("usage", usage, 4), ("decisions", decision, 3)):
        write_table(Path(made.tables), name)
        for second in range(seconds):
            write_table(Path(made.tables), name, make(second))
    return made


def begun(settings: Settings) -> None:
    """A checkpoint: the job has run here."""
    (Path(settings.checkpoints) / "log").mkdir(parents=True)
    (Path(settings.checkpoints) / "log" / "metadata").write_text('{"id":"1"}', "utf-8")


def test_what_is_measured_and_judged_is_closed(settings: Settings) -> None:
    # `usage` is one commit ahead, as in the middle of a micro-batch.
    assert closed_through_ms(settings) == T0_MS + 3_000
    begun(settings)
    assert closed_through_ms(settings) == T0_MS + 3_000


def _an_hour_behind(settings: Settings) -> Settings:
    """Another cluster in the same tables, judged through the second 3,600 s before the last one of `demo`."""
    made = settings.changed(cluster_id="slow")
    begun(made)
    tables = Path(made.tables)
    write_table(tables, "requests", request(0, T0_MS - 3_598_000, cluster_id="slow", event_date=DAY))
    for name, make, seconds in (("usage", usage, 4), ("decisions", decision, 3)):
        for second in range(seconds):
            write_table(tables, name, make(second - 3_600, cluster_id="slow"))
    return made


def test_a_cluster_that_is_an_hour_behind_in_the_same_tables_has_its_own_closed_time(
    settings: Settings,
) -> None:
    slow = _an_hour_behind(settings)
    assert closed_through_ms(slow) == T0_MS - 3_600_000 + 3_000
    assert require_closed(slow, T0_MS - 3_600_000, T0_MS - 3_597_000) == T0_MS - 3_597_000
    # What is closed of the other one is open here: its own job will write that second.
    with pytest.raises(UserError, match=r"^seconds from 2026-11-21 04:40:03 UTC on are open, the audit may"):
        require_closed(slow, T0_MS - 3_600_000, T0_MS + 2_000)
    assert closed_through_ms(settings) == T0_MS + 3_000


def test_a_cluster_that_has_judged_nothing_has_nothing_closed(settings: Settings) -> None:
    begun(settings)
    with pytest.raises(UserError, match=r"^nothing to restate: the audit has not judged a second yet$"):
        require_closed(settings.changed(cluster_id="new"), T0_MS, T0_MS + 1_000)


def test_requests_of_another_cluster_are_not_those_of_a_period(settings: Settings) -> None:
    day_before = {"cluster_id": "older", "event_date": DAY - timedelta(days=1)}
    write_table(Path(settings.tables), "requests", request(0, T0_MS - 86_400_000, **day_before))
    with pytest.raises(UserError, match=r"^table requests begins with 2026-11-21, and rows before it would"):
        require_closed(settings, T0_MS - 86_400_000, T0_MS)


def test_lines_that_nobody_will_judge_are_closed(settings: Settings) -> None:
    # Of archives: the job has never run on these tables.
    lines = [request(1, T0_MS + 9_500), request(2, T0_MS + 99_000, is_out_of_time=True)]
    write_table(Path(settings.tables), "requests", *lines, heartbeat(3, T0_MS + 60_000))
    assert closed_through_ms(settings) == T0_MS + 10_000
    begun(settings)
    assert closed_through_ms(settings) == T0_MS + 3_000


def test_a_damaged_checkpoint_is_said_in_a_line(settings: Settings) -> None:
    begun(settings)
    (Path(settings.checkpoints) / "log" / "metadata").write_text("{}", "utf-8")
    with pytest.raises(UserError, match=r"^checkpoint .*/log cannot be read: 'id'$"):
        not_folded_from_ms(settings)


def test_an_open_period_is_refused(settings: Settings, tmp_path: Path) -> None:
    assert require_closed(settings, T0_MS, T0_MS + 3_000) == T0_MS + 3_000
    with pytest.raises(
        UserError,
        match=r"^seconds from 2026-11-21 05:40:03 UTC on are open, the audit may still write them: restate up to",
    ):
        require_closed(settings, T0_MS, T0_MS + 3_001)
    with pytest.raises(UserError, match=r"^nothing to restate: .* is not after "):
        require_closed(settings, T0_MS, T0_MS)
    for name in ("usage", "decisions", "requests"):
        write_table(tmp_path / "empty", name)
    empty = Settings(tables=str(tmp_path / "empty"), checkpoints=settings.checkpoints)
    with pytest.raises(UserError, match=r"^nothing to restate: the audit has not judged a second yet$"):
        require_closed(empty, T0_MS, T0_MS + 1_000)


def test_a_period_whose_requests_are_gone_is_refused(settings: Settings) -> None:
    # They begin on 2026-11-21: what `usage` has of the day before could not be made again.
    day_before_ms = T0_MS - 86_400_000
    with pytest.raises(UserError, match=r"^table requests begins with 2026-11-21, and rows before it would"):
        require_closed(settings, day_before_ms, T0_MS)
    assert require_closed(settings, T0_MS - 20_000_000, T0_MS) == T0_MS + 3_000


def test_a_period_whose_requests_have_no_rows_is_refused(settings: Settings) -> None:
    left_out = request(50, T0_MS + 2_500, kind="left_out", lines=50, first_offset=1)
    write_table(Path(settings.tables), "requests", left_out)
    assert require_closed(settings, T0_MS, T0_MS + 2_000) == T0_MS + 3_000
    with pytest.raises(UserError) as refused:
        require_closed(settings, T0_MS, T0_MS + 2_001)
    assert str(refused.value) == (
        "50 requests between 2026-11-21 05:40:00 UTC and 2026-11-21 05:40:02 UTC have no row in table requests, "
        "because of tables.requests: only a period with all its requests can be restated"
    )
