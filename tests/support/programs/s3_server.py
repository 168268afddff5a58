"""As much of S3 as deltalake, DuckDB's dataset and Arrow ask for: objects in memory, behind the real HTTP interface.

Objects can be put under the condition that they are not there yet, which is what makes Delta's commits safe.
"""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint; in a process of its own, because deltalake may wait for an answer without letting Python go on."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def put(endpoint: str, key: str, data: bytes) -> None:
    """Put an object; the key begins with its bucket."""
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{key}", data, method="PUT")).close()


def keys(endpoint: str, bucket: str) -> list[str]:
    """The keys of all objects of a bucket."""
    with urllib.request.urlopen(f"{endpoint}/{bucket}?list-type=2") as answer:
        return re.findall("<Key>(.*?)</Key>", answer.read().decode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.objects: dict[str, bytes] = {}
        self.parts: dict[tuple[str, int], bytes] = {}
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_PUT(self) -> None:
        data = self._body()
        asked = parse_qs(urlsplit(self.path).query)
        if "partNumber" in asked:
            self.server.parts[self._key, int(asked["partNumber"][0])] = data
            return self._answer(200, etag=data)
        with self.server.lock:
            if self.headers.get("If-None-Match") == "*" and self._key in self.server.objects:
                return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            self.server.objects[self._key] = data
        return self._answer(200, etag=data)

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        if "list-type" in asked:
            return self._answer(200, self._listed({name: found[0] for name, found in asked.items()}).encode())
        data = self.server.objects.get(self._key)
        if data is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            return self._answer(200, data, etag=data)
        first = int(wanted[1]) if wanted[1] else max(0, len(data) - int(wanted[2]))
        last = min(int(wanted[2]), len(data) - 1) if wanted[1] and wanted[2] else len(data) - 1
        span = f"bytes {first}-{last}/{len(data)}"
        return self._answer(206, data[first : last + 1], etag=data, span=span)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.server.objects.pop(self._key, None)
        self._answer(204)

    def do_POST(self) -> None:
        """Begins or ends an upload in parts; one at a time for each key."""
        self._body()
        if "uploads" in parse_qs(urlsplit(self.path).query, keep_blank_values=True):
            answer = "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
            return self._answer(200, answer.encode())
        with self.server.lock:
            numbers = sorted(number for key, number in self.server.parts if key == self._key)
            data = b"".join(self.server.parts.pop((self._key, number)) for number in numbers)
            self.server.objects[self._key] = data
        etag = f"<ETag>&quot;{_etag(data)}&quot;</ETag>"
        answer = f"<CompleteMultipartUploadResult>{etag}</CompleteMultipartUploadResult>"
        return self._answer(200, answer.encode())

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b"".join(_chunks(self.rfile))
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        # AWS's own clients put chunks with a checksum behind them into the body as well.
        is_in_chunks = "aws-chunked" in self.headers.get("Content-Encoding", "")
        return b"".join(_chunks(io.BytesIO(data))) if is_in_chunks else data

    def _listed(self, asked: dict[str, str]) -> str:
        prefix, after = asked.get("prefix", ""), asked.get("start-after", "")
        bucket = self._key.strip("/")
        keys = sorted(key.removeprefix(bucket + "/") for key in self.server.objects)
        contents, directories = [], set()
        for key in keys:
            if not key.startswith(prefix) or key <= after:
                continue
            rest = key[len(prefix) :]
            if "delimiter" in asked and "/" in rest:
                directories.add(prefix + rest.partition("/")[0] + "/")
                continue
            data = self.server.objects[f"{bucket}/{key}"]
            contents.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>&quot;{_etag(data)}&quot;</ETag>"
                "<LastModified>2026-11-21T05:40:00.000Z</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
            )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            for name in sorted(directories)
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><IsTruncated>false</IsTruncated>'
            f"<KeyCount>{len(contents) + len(directories)}</KeyCount>{''.join(contents)}{common}</ListBucketResult>"
        )

    def _answer(self, status: int, body: bytes = b"", *, etag: bytes | None = None, span: str = "") -> None:
        self.send_response(status)
        if etag is not None:
            self.send_header("ETag", f'"{_etag(etag)}"')
            self.send_header("Last-Modified", "Sat, 21 Nov 2026 05:40:00 GMT")
        if span:
            self.send_header("Content-Range", span)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name in http.server
        """Requests are no news."""


def _chunks(body: io.BufferedIOBase) -> Iterator[bytes]:
    """The chunks of a body; what follows the last one is left out."""
    while size := int(body.readline().partition(b";")[0] or b"0", 16):
        yield body.read(size)
        body.readline()
    while body.readline().strip():
        pass


def _etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    server = _Server(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
