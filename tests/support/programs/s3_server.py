"""S3 as moto has it: objects in memory, behind the real HTTP interface."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

_SERVER = """
import sys
import threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer

if "unconditional" in sys.argv:
    answer = DomainDispatcherApplication.__call__

    def without(self, environ, start_response):
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return answer(self, environ, start_response)

    DomainDispatcherApplication.__call__ = without
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


@contextmanager
def s3_server(*options: str) -> Iterator[str]:
    """The endpoint of a server that has one bucket, `lake`.

    It is a process of its own, because deltalake may wait for an answer without letting Python continue.

    Args:
        options: `unconditional` for a store that puts an object over another one whatever is asked.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
            put(endpoint, "lake", b"")
            yield endpoint
        finally:
            process.kill()


def put(endpoint: str, key: str, data: bytes) -> None:
    """Put an object; the key begins with its bucket."""
    sent = urllib.request.Request(
        f"{endpoint}/{key}", data, {"Content-Type": "application/octet-stream"}, method="PUT"
    )
    urllib.request.urlopen(sent).close()


def keys(endpoint: str, bucket: str) -> list[str]:
    """The keys of all objects of a bucket."""
    with urllib.request.urlopen(f"{endpoint}/{bucket}?list-type=2") as answer:
        return re.findall("<Key>(.*?)</Key>", answer.read().decode())
