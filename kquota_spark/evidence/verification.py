"""Verifies a bundle without the tables: hashes each part anew, and rebuilds the decision from its lines and rules.

The links are checked in the order of the chain. The first false one ends the verification. A bundle is not signed: it
shows that its parts fit together, not who wrote it.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from kquota_spark.errors import UserError
from kquota_spark.evidence.bundle import FORM, MANIFEST, subject_of
from kquota_spark.evidence.lines import Line, offsets_of
from kquota_spark.evidence.parts import (
    LINES,
    PARTS,
    RESULT,
    RULES,
    SAMPLES,
    TEXT,
    Rebuild,
    Subject,
    bundle_charges,
    json_bytes,
    rebuild_from,
    samples_value,
    text_of,
)
from kquota_spark.evidence.rebuilding import NAMES, decision_bytes

MOST_BYTES = 500_000_000
"""Maximum size of all files of a bundle together, unpacked."""
_RATE = ("amount", "requests", "rate_per_s", "rate_at_most_per_s", "unsized_requests")
_LIMIT = ("limit_per_s", "level", "rule", "rule_version", "quota_used_percent")
_THROTTLE = (
    "throttle_ms", "throttled_requests", "total_throttle_ms", "observed_throttle_ms", "observed_throttled_requests",
    "observed_total_throttle_ms", "throttle_errors_ms",
)  # fmt: skip
_OF_SAMPLE = ("record_time_ms", "amount", "window_ms")
_OF_RATE = ("rate_per_s", "rate_at_most_per_s")
_OF_THROTTLE = ("throttle_ms", "observed_throttle_ms", "outcome", "cause")
_MALFORMED = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    StopIteration,
    RecursionError,
)
"""Errors of a part with another form. Whoever changed the bundle chose its values."""


class Link(NamedTuple):
    """A link of the chain that was checked: its name, and what is wrong; empty if it is true."""

    name: str
    problem: str


class Verified(NamedTuple):
    """The result: the checked links, the text of the bundle, and its manifest (empty if it cannot be read)."""

    links: list[Link]
    text: str
    manifest: Mapping[str, Any]

    @property
    def false_link(self) -> Link | None:
        """The first false link; None if the bundle is true."""
        return next((link for link in self.links if link.problem), None)


class _Bundle(NamedTuple):
    """The parts of a bundle, decoded, with the decision that was rebuilt from them."""

    manifest: Mapping[str, Any]
    subject: Subject
    lines: Sequence[Line]
    rules: Mapping[str, Any]
    samples: Mapping[str, Any]
    result: Mapping[str, Any]
    text: str


class _FalseError(Exception):
    """A link is false."""


def verify(path: Path) -> Verified:
    """Verify a bundle.

    Raises:
        UserError: the file cannot be read, or is no bundle.
    """
    files = _unpacked(path)
    links, manifest = list[Link](), dict[str, Any]()
    text = ""
    try:
        _check(links, "manifest", lambda: manifest.update(_manifest(files)))
        _check(links, "hashes", lambda: _hashes(files, manifest))
        bundle = _check(links, "form", lambda: _decoded(files, manifest))
        text = bundle.text
        _check(links, "line", lambda: _lines(bundle))
        _check(links, "bytes", lambda: _bytes(bundle))
        found = _check(links, "rules", lambda: rebuild_from(bundle.subject, bundle.lines, bundle.rules))
        for name, check in _CHECKS.items():
            _check(links, name, lambda check=check: check(bundle, found))  # type: ignore[misc]
    except _FalseError:
        pass
    return Verified(links, text, manifest)


def _check(links: list[Link], name: str, check: Callable[[], Any]) -> Any:
    try:
        found = check()
    except _FalseError as error:
        links.append(Link(name, str(error)))
        raise
    except _MALFORMED as error:
        links.append(Link(name, f"it has another form ({type(error).__name__})"))
        raise _FalseError from error
    links.append(Link(name, ""))
    return found


def _unpacked(path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            files = {info.filename: info for info in archive.infolist()}
            if len(files) != len(archive.infolist()) or set(files) != {MANIFEST, *PARTS}:
                raise UserError(
                    f"{path}: no bundle of kquota evidence: it has other files than {MANIFEST} and its parts"
                )
            if sum(info.file_size for info in files.values()) > MOST_BYTES:
                raise UserError(
                    f"{path}: larger than {MOST_BYTES:,} bytes when unpacked: no bundle of kquota evidence"
                )
            # `open` reads no more than the size that the archive states, and checks the CRC.
            return {name: archive.read(info) for name, info in files.items()}
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise UserError(f"{path}: the file is no ZIP archive, or is damaged") from error


def _manifest(files: Mapping[str, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files[MANIFEST])
    if found["form"] != FORM:
        raise _FalseError(
            f"form {found['form']!r}, expected {FORM}: verify it with the release that wrote it"
        )
    subject_of(found)
    return found


def _hashes(files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    if set(manifest["sha256"]) != set(PARTS):
        raise _FalseError("the manifest has hashes of other parts")
    for name in PARTS:
        if sha256(files[name]).hexdigest() != manifest["sha256"][name]:
            raise _FalseError(f"{name} does not have the SHA-256 of the manifest")


def _decoded(files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> _Bundle:
    lines = [json.loads(line) for line in files[LINES].splitlines()]
    rules, samples, result = (json.loads(files[name]) for name in (RULES, SAMPLES, RESULT))
    return _Bundle(manifest, subject_of(manifest), lines, rules, samples, result, files[TEXT].decode())


def _lines(bundle: _Bundle) -> None:
    """The lines are those of the manifest: offsets, times, and each once."""
    end_ms = bundle.subject.second_ms + 1_000
    if not all(bundle.manifest["from_ms"] <= line["record_time_ms"] < end_ms for line in bundle.lines):
        raise _FalseError("a line is not of the time that the manifest states")
    if len({(line["topic"], line["partition"], line["kafka_offset"]) for line in bundle.lines}) != len(
        bundle.lines
    ):
        raise _FalseError("a line is there twice")
    if [list(offsets) for offsets in offsets_of(bundle.lines)] != bundle.manifest["offsets"]:
        raise _FalseError("the lines have other offsets than the manifest")


def _bytes(bundle: _Bundle) -> None:
    """Each line charges the amounts that the bundle states."""
    amounts: list[list[int]] = [[] for _ in bundle.lines]
    for charge in bundle_charges(bundle.lines, bundle.subject.manager):
        amounts[charge.place].append(charge.point.amount)
    for line, charged in zip(bundle.lines, amounts, strict=True):
        if line["amounts"] != charged:
            where = f"{line['topic']}, partition {line['partition']}, offset {line['kafka_offset']}"
            raise _FalseError(f"the line of {where} charges {charged}, not {line['amounts']}")


def _sample(bundle: _Bundle, found: Rebuild) -> None:
    """The samples before the second, and the amount and window of each request of it."""
    expected = _plain(samples_value(found))
    for name in ("before", "samples"):
        if bundle.samples[name] != expected[name]:
            raise _FalseError("the ring holds other samples")
    _same_requests(bundle, expected, _OF_SAMPLE)
    if bundle.result["model_variant"] != found.rebuilt.row["model_variant"]:
        raise _FalseError("the ring is another one")


def _rate(bundle: _Bundle, found: Rebuild) -> None:
    _same_requests(bundle, _plain(samples_value(found)), _OF_RATE)
    _same_columns(bundle, found, _RATE)


def _limit(bundle: _Bundle, found: Rebuild) -> None:
    _same_requests(bundle, _plain(samples_value(found)), ("limit_per_s",))
    _same_columns(bundle, found, _LIMIT)


def _throttle(bundle: _Bundle, found: Rebuild) -> None:
    _same_requests(bundle, _plain(samples_value(found)), _OF_THROTTLE)
    _same_columns(bundle, found, _THROTTLE)


def _result(bundle: _Bundle, found: Rebuild) -> None:
    """All other columns, and what the manifest states of the decision."""
    _same_columns(bundle, found, NAMES)
    row, manifest = found.rebuilt.row, bundle.manifest
    stated = {"ring": row["model_variant"], "rule": row["rule"], "rule_version": row["rule_version"]}
    for name, value in stated.items():
        if manifest[name] != value:
            raise _FalseError(f"the manifest states another {name}")


def _text(bundle: _Bundle, found: Rebuild) -> None:
    if bundle.text != text_of(found, bundle.manifest["lines_note"]):
        raise _FalseError(f"{TEXT} differs from the other parts")


_CHECKS: Mapping[str, Callable[[_Bundle, Rebuild], None]] = {
    "sample": _sample,
    "rate": _rate,
    "limit": _limit,
    "throttle": _throttle,
    "result": _result,
    "text": _text,
}


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    return json.loads(json_bytes(value))


def _same_requests(bundle: _Bundle, expected: Mapping[str, Any], names: Sequence[str]) -> None:
    stated, rebuilt = bundle.samples["requests"], expected["requests"]
    if len(stated) != len(rebuilt):
        raise _FalseError(f"{len(stated)} requests in the second, rebuilt {len(rebuilt)}")
    for name in names:
        for place, (one, other) in enumerate(zip(stated, rebuilt, strict=True)):
            if one[name] != other[name]:
                raise _FalseError(f"{name} of request {place} is {one[name]}, rebuilt {other[name]}")


def _same_columns(bundle: _Bundle, found: Rebuild, names: Sequence[str]) -> None:
    for name in _differing(bundle.result, found.rebuilt.row, names):
        raise _FalseError(f"{name} is {bundle.result[name]}, rebuilt {found.rebuilt.row[name]}")


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if decision_bytes(one, [name]) != decision_bytes(other, [name]):
            yield name
