"""A browser that does not start, or stops on the way: the error says how it ended and what it printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.programs.chromium import chromium

SEVEN_ANSWERS = """
import json, os, time
for _ in range(7):
    asked = b""
    while not asked.endswith(b"\\0"):
        asked += os.read(3, 1)
    answer = {"id": json.loads(asked[:-1])["id"], "result": {"targetId": "t", "sessionId": "s"}}
    os.write(4, json.dumps(answer).encode() + b"\\0")
time.sleep(600)
"""
"""As many as the start of a page takes; then it hangs."""


def becomes_chromium(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of a shell that is found as the browser."""
    (folder / "chromium").write_text(f"#!/bin/sh\n{program}\n", encoding="ascii")
    (folder / "chromium").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


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
    becomes_chromium(program, tmp_path, monkeypatch)
    if "still runs" in told:
        monkeypatch.setattr("tests.support.programs.chromium._ANSWER_S", 1.0)
    with pytest.raises(AssertionError, match=r"^the browser ") as raised, chromium(tmp_path):
        pass
    assert str(raised.value).endswith(told)


def test_a_browser_that_hung_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answers.py").write_text(SEVEN_ANSWERS, encoding="ascii")
    becomes_chromium(f"exec {sys.executable} {tmp_path}/answers.py", tmp_path, monkeypatch)
    with chromium(tmp_path) as browser:
        monkeypatch.setattr("tests.support.programs.chromium._ANSWER_S", 1.0)
        with pytest.raises(AssertionError, match=r"has not come to Page\.reload in 1 s; it still runs"):
            browser.call("Page.reload")
        monkeypatch.setattr("tests.support.programs.chromium._ANSWER_S", 60.0)
        with pytest.raises(AssertionError, match="signal 9"):
            browser.call("Page.reload")
