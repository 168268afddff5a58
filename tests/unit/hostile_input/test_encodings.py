"""Logs in other encodings, with NULs after a crash, or with odd line ends: the exact rows of their replay."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.logs.followed_log import all_lines, tail_of
from tests.support.logs.log_lines import PRODUCE_V9, changed
from tests.support.logs.replayed_captures import found, run
from tests.support.places import DATA

QUOTAS = ("--quotas", str(DATA / "jmx-telegraf" / "quotas.yaml"))
NO_MARKER = "no 'Completed request:' near the start"
NO_TIME = "no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start"
NOT_JSON = "not valid JSON (cut in half, or not UTF-8)"
NOT_A_LOGGER = "text after the request that is not a logger's name"
# Each separates lines somewhere: for Python's splitlines, for JavaScript, for a terminal.
SEPARATORS = "a\u2028b\u2029c\u0085d\ufeffe"
NULS = b"\0" * 4_096


def line(client_id: str, number: int) -> bytes:
    """A produce of 2024-11-20 12:00:00,123, as Kafka writes it: text beyond ASCII stands as it is."""
    return changed(
        PRODUCE_V9, ("checkout-svc", client_id), ('"correlationId":4711', f'"correlationId":{number}')
    )


ONE, TWO, THREE = (line(name, number) for number, name in enumerate(("one", "two", "three"), 1))
TEXT = b"".join(each + b"\n" for each in (ONE, TWO, THREE))


def replayed(folder: Path, data: bytes) -> dict[str, Any]:
    path = folder / "broker-1.log"
    path.write_bytes(data)
    return found(["replay", *QUOTAS, "--by", "request", str(path)])


def refused(folder: Path, data: bytes) -> dict[str, Any]:
    """The answer for a log without any request: an error for people, and the counts for programs."""
    path = folder / "broker-1.log"
    path.write_bytes(data)
    code, out, err = run(["replay", *QUOTAS, "--by", "request", str(path), "--output", "json"])
    assert (code, "broker-1.log: no request in " in err) == (1, True)
    answer: dict[str, Any] = json.loads(out)
    return answer


def rows(answer: dict[str, Any]) -> list[tuple[str, int]]:
    """Client id and bytes of each request; all at one millisecond, so in the order of their names."""
    return sorted((row["bucket_client_id"], row["amount"]) for row in answer["requests"])


# 11 + the client id + 6 + 1 + 1 + 1, "orders" + 1 + 2, 5 + 3 + 16384: header v2 and a produce v9.
def of(client_id: str) -> tuple[str, int]:
    return client_id, 20 + len(client_id.encode()) + 9 + 16_392


@pytest.mark.parametrize(
    ("data", "read", "unreadable", "unsized"),
    [
        (TEXT, ["one", "two", "three"], {}, []),
        (TEXT.replace(b"\n", b"\r\n"), ["one", "two", "three"], {}, []),
        (TEXT.rstrip(b"\n"), ["one", "two", "three"], {}, []),
        (TEXT.replace(b"\n", b"\r"), [], {NOT_JSON: 1}, []),  # one line: a lone carriage return ends none
        (codecs.BOM_UTF8 + TEXT, ["two", "three"], {NO_TIME: 1}, []),
        # The byte of the line feed is half of a character: the other half begins the next line, or is the last one.
        (codecs.BOM_UTF16_LE + TEXT.decode().encode("utf-16-le"), [], {NO_MARKER: 4}, []),
        (codecs.BOM_UTF16_BE + TEXT.decode().encode("utf-16-be"), [], {NO_MARKER: 3}, []),
        (codecs.BOM_UTF32_LE + TEXT.decode().encode("utf-32-le"), [], {NO_MARKER: 4}, []),
        (line("größe", 1).decode().encode("latin-1") + b"\n" + TWO, ["two"], {NOT_JSON: 1}, ["gr\ufffd\ufffde"]),
        (ONE + b"\n" + NULS + b"\n" + THREE, ["one", "three"], {NO_MARKER: 1}, []),
        (ONE + b"\n" + NULS + TWO + b"\n" + THREE, ["one", "three"], {NO_MARKER: 1}, []),
        (ONE[:300] + NULS + TWO + b"\n" + THREE, ["three"], {NOT_JSON: 1}, []),
        (ONE + b"\n" + TWO + NULS + b"\n" + THREE, ["one", "three"], {NOT_A_LOGGER: 1}, ["two"]),
        (line("ze\0ro", 1) + b"\n" + TWO, ["two"], {NOT_JSON: 1}, []),
        (line("ze\\u0000ro", 1) + b"\n" + TWO, ["two", "ze\0ro"], {}, []),
        (line(SEPARATORS, 1) + b"\n" + TWO, [SEPARATORS, "two"], {}, []),
        (line("\\u2028[2024-11-20 12:00:00,123] DEBUG", 1), ["\u2028[2024-11-20 12:00:00,123] DEBUG"], {}, []),
    ],
    ids=(
        "lf", "crlf", "no end", "cr", "utf-8 bom", "utf-16-le", "utf-16-be", "utf-32-le", "latin-1", "nul line",
        "nuls before", "nuls within", "nuls behind", "nul in a name", "escaped nul", "separators", "escaped separator",
    ),
)  # fmt: skip
def test_a_log_in_whatever_encoding_has_exactly_these_rows(
    data: bytes, read: list[str], unreadable: dict[str, int], unsized: list[str], tmp_path: Path
) -> None:
    answer = replayed(tmp_path, data) if read else refused(tmp_path, data)
    assert answer["unreadable_reasons"] == unreadable
    assert answer["lines"] == len(read) + sum(unreadable.values())
    assert answer["counted"] == len(read)
    assert rows(answer) == sorted([*map(of, read), *((name, 0) for name in unsized)])


def test_the_tail_ships_what_the_replay_reads(log: Path) -> None:
    separated = line(SEPARATORS, 1)
    log.write_bytes(codecs.BOM_UTF8 + ONE + b"\r\n" + NULS + TWO + b"\n" + separated + b"\n")
    assert all_lines(tail_of(log)) == [codecs.BOM_UTF8 + ONE, NULS + TWO, separated]


def test_both_forms_of_one_accent_are_two_clients(tmp_path: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    answer = replayed(tmp_path, line(composed, 1) + b"\n" + line(decomposed, 2) + b"\n")
    assert rows(answer) == [of(decomposed), of(composed)]
