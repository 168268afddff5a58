"""S3's HTTP interface by two servers: moto keeps objects in memory, S3Proxy keeps them on a disk."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kquota_spark.embedded.servers import free_ports
from kquota_spark.embedded.setup.jars import ensure_jars
from kquota_spark.embedded.setup.java import find_java
from kquota_spark.process.processes import wait_for
from tests.support.places import DATA

S3PROXY = DATA / "ivy-s3proxy.xml"
_BEGUN_WITHIN_S = 60.0
_WARNINGS_ALONE = """<configuration>
<appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""

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


@contextmanager
def s3_on_disk(root: Path) -> Iterator[str]:
    """The endpoint of S3Proxy, which has one bucket, `lake`, as a directory.

    Args:
        root: an empty directory, or none yet.
    """
    (root / "lake").mkdir(parents=True)
    [port] = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    options = {
        "s3proxy.endpoint": endpoint,
        "s3proxy.authorization": "none",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(root),
    }
    properties = root.with_suffix(".properties")
    properties.write_text("".join(f"{name}={value}\n" for name, value in options.items()), "utf-8")
    logging = root.with_suffix(".logback.xml")
    logging.write_text(_WARNINGS_ALONE, "utf-8")
    classes = f"{ensure_jars(S3PROXY).broker[0].parent}/*"
    options_of_java = ("-Xmx512m", f"-Dlogback.configurationFile={logging}", "-cp", classes)
    program = ("org.gaul.s3proxy.Main", "--properties", str(properties))
    command = [str(find_java().path), *options_of_java, *program]
    with (
        root.with_suffix(".log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            assert wait_for(lambda: _answers(endpoint), within_s=_BEGUN_WITHIN_S)
            yield endpoint
        finally:
            process.kill()


def _answers(endpoint: str) -> bool:
    try:
        return keys(endpoint, "lake") == []
    except urllib.error.URLError:
        return False


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
