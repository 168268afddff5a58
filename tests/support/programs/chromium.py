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

from kquota_spark.embedded.processes import wait_for
from tests.tools import CHROMIUM, found

_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--mute-audio", "--force-color-profile=srgb",
    # What a first start waits for: a keyring over D-Bus, a proxy on the network, little shared memory, a crash server.
    "--password-store=basic", "--no-proxy-server", "--disable-dev-shm-usage", "--disable-crash-reporter",
)  # fmt: skip
_ANSWER_S = 240.0
"""The first answer waits for the program to be read from a disk that may be busy; 30 s were once not enough."""
_LOOK_S = 0.5
_SAID_CHARACTERS = 4_000


class Chromium:
    """One page of one browser, and everything that it said."""

    def __init__(self, to_browser: int, from_browser: int, pid: int, log: Path) -> None:
        self._to, self._from, self._pid, self._log = to_browser, from_browser, pid, log
        self._rest = b""
        self._last_id = 0
        self.events: list[dict[str, Any]] = []
        blank = {"url": "about:blank"}
        target = self._call("Target.createTarget", blank, None)["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True}, None)
        self._session: str = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command to the page, and its answer."""
        return self._call(method, parameters, self._session)

    def _call(self, method: str, parameters: dict[str, Any], session: str | None) -> dict[str, Any]:
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        self._send(message)
        deadline = time.monotonic() + _ANSWER_S
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == self._last_id:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)
            if answer.get("method") == "Page.javascriptDialogOpening":
                # An open dialog would stop everything; that it came stays in the events.
                self._send({
                    "id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": False}, "sessionId": session,
                })  # fmt: skip

    def _send(self, message: dict[str, Any]) -> None:
        try:
            os.write(self._to, json.dumps(message).encode() + b"\0")
        except BrokenPipeError as error:
            raise self._gone(f"takes no {message['method']}") from error

    def _next(self, deadline: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if select.select([self._from], [], [], _LOOK_S)[0]:
                part = os.read(self._from, 1 << 20)
                if not part:
                    raise self._gone(f"closed its pipe before {what}")
                self._rest += part
            elif self._end() is not None:  # a process that it left behind may hold the pipe open
                raise self._failure(f"ended before {what}")
            elif time.monotonic() > deadline:
                failure = self._failure(f"has not come to {what} in {_ANSWER_S:.0f} s")
                os.kill(self._pid, signal.SIGKILL)  # so that the next test does not wait for it as long
                raise failure
        message, _, self._rest = self._rest.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def _end(self) -> str | None:
        """How the program ended; None while it runs. It stays to be waited for."""
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        is_exit = ended.si_code == os.CLD_EXITED
        return f"exit code {ended.si_status}" if is_exit else f"signal {ended.si_status}"

    def _gone(self, what: str) -> AssertionError:
        """An error of a browser that has closed its pipe: then it ends."""
        wait_for(lambda: self._end() is not None, within_s=10)
        return self._failure(what)

    def _failure(self, what: str) -> AssertionError:
        """An error with all that can be known of the browser."""
        said = self._log.read_text(encoding="utf-8", errors="replace").strip()
        state = self._end() or "it still runs"
        return AssertionError(
            f"the browser {what}; {state}; it printed: {said[-_SAID_CHARACTERS:] or 'nothing'}"
        )

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
        loader = self.call("Page.navigate", url=page.as_uri())["loaderId"]
        deadline = time.monotonic() + _ANSWER_S
        while not any(_is_loaded(event, loader) for event in self.events):
            self.events.append(self._next(deadline, f"the end of loading {page.name}"))

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


def _is_loaded(event: dict[str, Any], loader: str) -> bool:
    """Whether this very document is; the page before it may say so late."""
    said = event.get("params", {})
    is_load = event.get("method") == "Page.lifecycleEvent" and said["name"] == "load"
    return is_load and bool(said["loaderId"] == loader)


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
    printed = folder / "chromium.log"
    log = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
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
        yield Chromium(to_browser, from_browser, pid, printed)
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(to_browser)
        os.close(from_browser)
