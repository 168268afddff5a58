"""A headless Chromium of this machine, driven by Playwright."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, Dialog, Page, sync_playwright

from tests.tools import CHROMIUM, found

_FLAGS = ("--no-proxy-server", "--disable-crash-reporter")
"""A first start waits for what these leave out."""
_ANSWER_S = 240.0
"""The first answer waits for the program to be read from a disk that may be busy; 30 s were once not enough."""


class Chromium:
    """One page of one browser, and everything that it said."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._cdp = page.context.new_cdp_session(page)
        self._complaints: list[str] = []
        self._requests: list[str] = []
        self.call("Page.enable")
        page.set_default_timeout(_ANSWER_S * 1_000)
        page.on("request", lambda request: self._requests.append(request.url))
        page.on("pageerror", lambda error: self._complaints.append(str(error)))
        page.on("console", self._on_console)
        page.on("dialog", self._on_dialog)

    def _on_console(self, message: ConsoleMessage) -> None:
        self._complaints.append(f"{message.type}: {message.text}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self._complaints.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of Chromium's protocol to the page, and its answer."""
        answer: dict[str, Any] = self._cdp.send(method, parameters)
        return answer

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript comes to; promises are awaited.

        Playwright's own `evaluate` calls `eval`, which the policy of the page forbids.
        """
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def open(self, page: Path, width: int, height: int, *, theme: str = "light") -> None:
        """Open a file in a window of that size, and wait until its charts are drawn."""
        self.resize(width, height)
        self.media(theme)
        self.load(page)
        deadline = time.monotonic() + _ANSWER_S
        while self.value("document.documentElement.dataset.charts") not in {"drawn", "failed"}:
            assert time.monotonic() < deadline, "the charts were never drawn"
            time.sleep(0.05)

    def load(self, page: Path) -> None:
        """Load a file, and forget what was said before."""
        self.visit(page.as_uri())

    def visit(self, address: str, **headers: str) -> None:
        """Load an address with further headers, and forget what was said before."""
        self._complaints.clear()
        self._requests.clear()
        self._page.set_extra_http_headers(headers)
        self._page.goto(address)

    def enter(self, text: str) -> None:
        """Type into the field that has the focus, then Enter, and wait for the page that answers."""
        # A page that has loaded may still have to give its field the focus.
        deadline = time.monotonic() + _ANSWER_S
        while self.value("document.activeElement.tagName") != "INPUT":
            assert time.monotonic() < deadline, "no field got the focus"
            time.sleep(0.05)
        with self._page.expect_navigation():
            self.call("Input.insertText", text=text)
            self._page.keyboard.press("Enter")

    def leave(self, expression: str) -> None:
        """Evaluate what makes the page go elsewhere, and wait for the page that comes."""
        with self._page.expect_navigation():
            self.value(expression)

    def resize(self, width: int, height: int) -> None:
        """The size of the window in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def media(self, theme: str) -> None:
        """What the system prefers: `light` or `dark`."""
        self._page.emulate_media(color_scheme="dark" if theme == "dark" else "light")

    def screenshot(self, path: Path, *, is_whole: bool = False) -> bytes:
        """A picture of the window, or of the whole page."""
        return self._page.screenshot(path=path, full_page=is_whole)

    def pdf(self, path: Path) -> bytes:
        """The page as printed."""
        return self._page.pdf(path=path, prefer_css_page_size=True, print_background=True)

    def complaints(self) -> list[str]:
        """Messages of the console, exceptions, violations of the page's policy, dialogs."""
        return self._complaints

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        return self._requests


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """A browser with a profile of its own and `folder` for its home, ended with all its processes."""
    program = found(CHROMIUM)
    assert program is not None, "no Chromium on the PATH: install it, e.g. apt-get install chromium"
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=program,
            args=_FLAGS,
            chromium_sandbox=os.geteuid() != 0,
            env={**os.environ, "HOME": str(folder)},
            timeout=_ANSWER_S * 1_000,
        ) as browser,
    ):
        yield Chromium(browser.new_page(no_viewport=True))
