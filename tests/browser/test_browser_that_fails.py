"""A browser that does not start, or stops on the way: the error says how it ended and what it printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.chromium import chromium


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("echo no sandbox >&2; exit 7", "exit code 7; it printed: no sandbox"),
        ("echo crashed; kill -SEGV $$", "signal 11; it printed: crashed"),
        # What it leaves behind holds its end of the pipe.
        ("sleep 60 & echo gone; exit 3", "exit code 3; it printed: gone"),
        ("exec sleep 60", "it still runs; it printed: nothing"),
    ],
)
def test_the_error_says_how_a_browser_ended_and_what_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, told: str
) -> None:
    (tmp_path / "chromium").write_text(f"#!/bin/sh\n{program}\n", encoding="ascii")
    (tmp_path / "chromium").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if "still runs" in told:
        monkeypatch.setattr("tests.browser.chromium._ANSWER_S", 1.0)
    with pytest.raises(AssertionError, match=r"^the browser ") as raised, chromium(tmp_path):
        pass
    assert str(raised.value).endswith(told)
