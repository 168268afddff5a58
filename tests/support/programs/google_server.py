"""Google's object store as far as deltalake asks it: objects in memory, behind its XML interface."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

_ETAG = '"1"'
_TIME = "2026-11-21T12:00:00.000Z"


class _Objects(BaseHTTPRequestHandler):
    """A request of the client; keys begin with the bucket."""

    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]] = {}
    pieces: ClassVar[dict[str, dict[int, bytes]]] = {}
    lock: ClassVar[threading.Lock] = threading.Lock()

    def log_message(self, *_: object) -> None:
        """Nothing: the test reports what it finds."""

    def do_PUT(self) -> None:
        key, query, data = self._asked()
        with self.lock:
            if "uploadId" in query:
                self.pieces[query["uploadId"]][int(query["partNumber"])] = data
            elif self.headers.get("x-goog-if-generation-match") == "0" and key in self.objects:
                return self._answer(412)
            else:
                self.objects[key] = data
        return self._answer(200)

    def do_POST(self) -> None:
        key, query, _ = self._asked()
        with self.lock:
            if "uploads" in query:
                name = str(len(self.pieces))
                self.pieces[name] = {}
                text = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            else:
                pieces = self.pieces[query["uploadId"]]
                self.objects[key] = b"".join(pieces[number] for number in sorted(pieces))
                text = f"<CompleteMultipartUploadResult><ETag>{_ETAG}</ETag></CompleteMultipartUploadResult>"
        self._answer(200, text.encode())

    def do_GET(self) -> None:
        key, query, _ = self._asked()
        with self.lock:
            if "list-type" in query:
                return self._answer(200, self._listed(key, query).encode())
            found = self.objects.get(key)
        if found is None:
            return self._answer(404)
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last = int(asked[1]), min(int(asked[2]), len(found) - 1)
            place = f"bytes {first}-{last}/{len(found)}"
            return self._answer(206, found[first : last + 1], place)
        return self._answer(200, found)

    do_HEAD = do_GET  # noqa: N815 - its name in http.server

    def do_DELETE(self) -> None:
        key, _, _ = self._asked()
        with self.lock:
            self.objects.pop(key, None)
        self._answer(204)

    def _asked(self) -> tuple[str, dict[str, str], bytes]:
        uri = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(uri.query, keep_blank_values=True).items()}
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return unquote(uri.path).strip("/"), query, data

    def _listed(self, bucket: str, query: dict[str, str]) -> str:
        start, after = f"{bucket}/{query.get('prefix', '')}", query.get("start-after", "")
        names, folders = [], set()
        for key in sorted(self.objects):
            name = key.removeprefix(f"{bucket}/")
            if not key.startswith(start) or name <= after:
                continue
            rest, delimiter, _ = key[len(start) :].partition("/") if "delimiter" in query else ("", "", "")
            if delimiter:
                folders.add(f"{query.get('prefix', '')}{rest}/")
            else:
                names.append((name, len(self.objects[key])))
        contents = "".join(
            f"<Contents><Key>{name}</Key><LastModified>{_TIME}</LastModified><ETag>{_ETAG}</ETag><Size>{size}</Size>"
            "</Contents>"
            for name, size in names
        )
        prefixes = "".join(
            f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in sorted(folders)
        )
        return f"<ListBucketResult>{contents}{prefixes}</ListBucketResult>"

    def _answer(self, status: int, data: bytes = b"", place: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", _ETAG)
        self.send_header("Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT")
        if place is not None:
            self.send_header("Content-Range", place)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def google_server(key_file: Path) -> Iterator[str]:
    """The address of a server, which the key file has too.

    It is a process of its own, because deltalake may wait for an answer without letting Python continue.
    """
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = f"http://127.0.0.1:{int(process.stdout.readline())}"
            login = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
            key_file.write_text(
                json.dumps({"gcs_base_url": address, "disable_oauth": True, **login}), "utf-8"
            )
            yield address
        finally:
            process.kill()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Objects)
    print(server.server_port, flush=True)
    server.serve_forever()
