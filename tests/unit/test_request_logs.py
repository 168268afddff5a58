"""A broker's request log at a full hour: what it rolls away belongs to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.embedded import request_logs
from kquota_spark.embedded.request_logs import logged_lines


def test_lines_that_were_rolled_away_come_first_and_half_a_line_not_at_all(tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log"
    for name, text in ((".2026-11-21-22", b"1\n2\n"), (".2026-11-21-23", b"3\n"), ("", b"4\n5\nhal")):
        (tmp_path / f"{log.name}{name}").write_bytes(text)
    assert logged_lines(log) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_log_that_is_rolled_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_bytes(b"1\n")
    text = request_logs._text

    def rolled(path: Path) -> bytes:
        monkeypatch.undo()
        log.rename(tmp_path / f"{log.name}.2026-11-21-23")
        log.write_bytes(b"2\n")
        return text(path)

    monkeypatch.setattr(request_logs, "_text", rolled)
    assert logged_lines(log) == [b"1", b"2"]
