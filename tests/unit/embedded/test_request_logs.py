"""The request log of a broker that is at work."""

from __future__ import annotations

from pathlib import Path

from kquota_spark.embedded.cluster import logged_lines


def test_a_line_that_is_still_being_written_is_none(tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_bytes(b"1\n2\nhal")
    assert logged_lines(log) == [b"1", b"2"]
