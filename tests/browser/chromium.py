"""A headless Chromium, driven over its debugging pipe: JSON messages ended by NUL on its descriptors 3 and 4."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.tools import CHROMIUM, found

_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--mute-audio", "--force-color-profile=srgb",
)  # fmt: skip
_ANSWER_S = 30.0
_START_S = 120.0
"""The first answer waits for the program to be read from a disk that may be busy; 30 s were once not enough."""


class Chromium:
    """One page of one browser, and everything that it said."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._last_id = 0
        self.events: list[dict[str, Any]] = []
        blank = {"url": "about:blank"}
        target = self._call("Target.createTarget", blank, None, within_s=_START_S)["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True}, None)
        self._session: str = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command to the page, and its answer."""
        return self._call(method, parameters, self._session)

    def _call(
        self, method: str, parameters: dict[str, Any], session: str | None, *, within_s: float = _ANSWER_S
    ) -> dict[str, Any]:
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + within_s
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._last_id:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)
            if answer.get("method") == "Page.javascriptDialogOpening":
                # An open dialog would stop everything; that it came stays in the events.
                os.write(self._to, json.dumps({
                    "id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": False}, "sessionId": session,
                }).encode() + b"\0")  # fmt: skip

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._from, 1 << 20)
            assert part, "the browser is gone"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript comes to; promises are awaited."""
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
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        deadline = time.monotonic() + _ANSWER_S
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(deadline))

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
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def screenshot(self, path: Path, *, is_whole: bool = False) -> bytes:
        """A picture of the window, or of the whole page."""
        options: dict[str, Any] = {}
        if is_whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            options = {"captureBeyondViewport": True, "clip": clip}
        picture = base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"])
        path.write_bytes(picture)
        return picture

    def pdf(self, path: Path) -> bytes:
        """The page as printed."""
        printed = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        path.write_bytes(base64.b64decode(printed["data"]))
        return path.read_bytes()

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, violations of the page's policy, dialogs."""
        complained = []
        for event in self.events:
            method, said = event.get("method", ""), event.get("params", {})
            if method in {"Runtime.exceptionThrown", "Page.javascriptDialogOpening"}:
                complained.append(json.dumps(said))
            elif method == "Runtime.consoleAPICalled":
                complained.append(json.dumps([said["type"], said["args"]]))
            elif method == "Log.entryAdded" and said["entry"]["level"] in {"warning", "error"}:
                complained.append(said["entry"]["text"])
        return complained

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        sent = [
            event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"
        ]
        return [one["request"]["url"] for one in sent]


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """A browser with a profile of its own in `folder`, ended with all its processes."""
    program = found(CHROMIUM)
    assert program is not None, "no Chromium on the PATH: install it, e.g. apt-get install chromium"
    read_end, to_browser = os.pipe()
    from_browser, write_end = os.pipe()
    # Far from 3 and 4, so that neither is overwritten before it is copied there.
    high_read, high_write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (read_end, write_end))
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    log = os.open(folder / "chromium.log", os.O_WRONLY | os.O_CREAT, 0o600)
    pid = os.posix_spawn(
        program,
        [program, *_FLAGS, *sandbox, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        os.environ | {"HOME": str(folder)},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, high_read, 3),
            (os.POSIX_SPAWN_DUP2, high_write, 4),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ],
        setpgroup=0,
    )
    for end in (read_end, write_end, high_read, high_write, log):
        os.close(end)
    try:
        yield Chromium(to_browser, from_browser)
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(to_browser)
        os.close(from_browser)
