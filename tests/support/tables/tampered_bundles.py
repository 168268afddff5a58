"""Bundles in which somebody has changed something, each with the link that is then the first false one."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from kquota_spark.evidence.bundle import MANIFEST
from kquota_spark.evidence.parts import LINES, PARTS, RESULT, RULES, SAMPLES, TEXT
from tests.support.chance import Chance

Files = dict[str, bytes]


def unzipped(bundle: bytes) -> Files:
    """The files of a bundle."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Files as a bundle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def rehashed(files: Files) -> Files:
    """The same with the hashes of the parts as they are now: whoever changed a part did that too."""
    manifest = json.loads(files[MANIFEST])
    manifest["sha256"] = {name: sha256(files[name]).hexdigest() for name in PARTS}
    return {**files, MANIFEST: _json(manifest)}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _lines(files: Files) -> list[Any]:
    return [json.loads(line) for line in files[LINES].splitlines()]


def _with_lines(files: Files, lines: list[Any]) -> Files:
    return rehashed({**files, LINES: b"".join(_json(line) + b"\n" for line in lines)})


def _with(files: Files, part: str, change: Callable[[Any], None]) -> Files:
    value = json.loads(files[part])
    change(value)
    return rehashed({**files, part: _json(value)})


def _flip(part: str) -> Callable[[Files, Chance], Files]:
    """One bit of a part, without new hashes."""

    def flip(files: Files, chance: Chance) -> Files:
        data = bytearray(files[part])
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(7)
        return {**files, part: bytes(data)}

    return flip


def _drop_line(files: Files, chance: Chance) -> Files:
    lines = _lines(files)
    del lines[chance.randrange(len(lines))]
    return _with_lines(files, lines)


def _repeat_line(files: Files, chance: Chance) -> Files:
    lines = _lines(files)
    return _with_lines(files, [*lines, chance.choice(lines)])


def _more_bytes(files: Files, chance: Chance) -> Files:
    lines = _lines(files)
    chance.choice(lines)["amounts"][0] += 1
    return _with_lines(files, lines)


def _more_in_line(files: Files, chance: Chance) -> Files:
    """The line and its amount agree, but its sample no longer does."""
    lines = _lines(files)
    line = next(line for line in chance.sample(lines, len(lines)) if line["charged_bytes"])
    line["charged_bytes"] += 1
    line["amounts"] = [line["charged_bytes"]]
    # Requests that the ring forgot before the second change nothing, so the last line is changed as well.
    last = lines[-1]
    if last is not line and last["charged_bytes"]:
        last["charged_bytes"] += 1
        last["amounts"] = [last["charged_bytes"]]
    return _with_lines(files, lines)


def _longer_logged_throttle(files: Files, chance: Chance) -> Files:
    lines = _lines(files)
    lines[-1]["observed_throttle_ms"] += chance.randrange(1, 100)
    return _with_lines(files, lines)


def _other_limit(files: Files, chance: Chance) -> Files:
    def change(rules: Any) -> None:
        for rule in rules["rules"]:
            rule["values"] = {key: value * 1.5 for key, value in rule["values"].items()}

    return _with(files, RULES, change)


def _result(name: str, change: Callable[[Any], Any]) -> Callable[[Files, Chance], Files]:
    def changed(files: Files, chance: Chance) -> Files:
        return _with(files, RESULT, lambda row: row.update({name: change(row[name])}))

    return changed


def _request(name: str, change: Callable[[Any], Any]) -> Callable[[Files, Chance], Files]:
    def changed(files: Files, chance: Chance) -> Files:
        def of_samples(samples: Any) -> None:
            request = chance.choice(samples["requests"])
            request[name] = change(request[name])

        return _with(files, SAMPLES, of_samples)

    return changed


def _manifest(name: str, change: Callable[[Any], Any]) -> Callable[[Files, Chance], Files]:
    def changed(files: Files, chance: Chance) -> Files:
        value = json.loads(files[MANIFEST])
        value[name] = change(value[name])
        return {**files, MANIFEST: _json(value)}

    return changed


def _text(files: Files, chance: Chance) -> Files:
    return rehashed({**files, TEXT: files[TEXT].replace(b"throttle", b"thr0ttle", 1)})


def _older_samples(files: Files, chance: Chance) -> Files:
    def change(samples: Any) -> None:
        samples["samples"][0][2] += 1

    return _with(files, SAMPLES, change)


TAMPERED: Mapping[str, tuple[Callable[[Files, Chance], Files], str]] = {
    **{f"a bit of {part}": (_flip(part), "hashes") for part in PARTS},
    "form": (_manifest("form", lambda form: form + 1), "manifest"),
    "a line less": (_drop_line, "line"),
    "a line twice": (_repeat_line, "line"),
    "other offsets": (_manifest("offsets", lambda all_of: [[*all_of[0][:-1], 0], *all_of[1:]]), "line"),
    "more bytes stated": (_more_bytes, "bytes"),
    "more bytes in a line": (_more_in_line, "sample"),
    "more in a sample": (_older_samples, "sample"),
    "another window": (_request("window_ms", lambda window_ms: window_ms + 1), "sample"),
    "another ring": (_result("model_variant", lambda name: f"{name}0"), "sample"),
    "a lower rate": (_result("rate_per_s", lambda rate: rate * 0.99), "rate"),
    "a lower rate of a request": (_request("rate_per_s", lambda rate: rate - 1.0), "rate"),
    "another limit in the rules": (_other_limit, "limit"),
    "another limit": (_result("limit_per_s", lambda limit: (limit or 0.0) + 1.0), "limit"),
    "another rule": (_result("rule", lambda rule: "users/mallory"), "limit"),
    "a longer throttle": (_result("throttle_ms", lambda throttle_ms: throttle_ms + 1), "throttle"),
    "another throttle of a request": (
        _request("throttle_ms", lambda throttle_ms: throttle_ms + 1),
        "throttle",
    ),
    "another logged throttle": (_longer_logged_throttle, "throttle"),
    "another certainty": (_result("is_certain", lambda is_certain: not is_certain), "result"),
    "another count": (_result("requests_judged", lambda count: count + 1), "result"),
    "another rule in the manifest": (_manifest("rule", lambda rule: "users/mallory"), "result"),
    "another text": (_text, "text"),
}
"""By what was changed: how, and the first link that is then false."""
