"""The driver of the browser sees what a page says and asks for, so that the silence of a page means something."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs.chromium import chromium

PAGE = """<html><head><meta http-equiv="Content-Security-Policy" content="script-src 'nonce-a'"></head><body>
<script nonce="a">console.log("said"); alert("hello"); throw new Error("thrown")</script>
<script>blocked()</script><img src="missing.png"></body></html>
"""


def test_messages_dialogs_exceptions_violations_and_requests_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGE, encoding="ascii")
    with chromium(tmp_path) as browser:
        browser.load(page)
        said = sorted(complaint[:40] for complaint in browser.complaints())
        assert said == [
            "alert: hello",
            "error: Executing inline script violates ",
            "error: Failed to load resource: net::ERR",
            "log: said",
            "thrown",
        ]
        assert browser.requests() == [page.as_uri(), (tmp_path / "missing.png").as_uri()]


def test_a_browser_that_does_not_start_is_an_error_with_what_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chromium").write_text("#!/bin/sh\necho no sandbox >&2\nexit 7\n", encoding="ascii")
    (tmp_path / "chromium").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(Exception, match=r"(?s)no sandbox.*exitCode=7"), chromium(tmp_path):
        pass
