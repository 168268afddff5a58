"""The bytes charged equal what Kafka's own classes serialise, for every version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kquota_spark.formats.request_log.charged_bytes import FETCH_VERSIONS, PRODUCE_VERSIONS
from kquota_spark.formats.request_log.line import RequestLogParser
from tests.support.logs.log_lines import FETCH_V12, FETCH_V17_THROTTLED, PRODUCE_V9
from tests.support.places import DATA

_FILE = DATA / "wire-sizes" / "examples.jsonl"
EXAMPLES = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]
PARSER = RequestLogParser()


def line_of(example: dict[str, Any]) -> bytes:
    """A whole line around the header and the body that Kafka wrote."""
    template = {
        "produce": PRODUCE_V9,
        "fetch": FETCH_V12 if example["version"] <= 14 else FETCH_V17_THROTTLED,
    }
    line = template[example["kind"]].replace(b'"throttleTimeMs":1800', b'"throttleTimeMs":0')
    start, end = line.index(b"{"), line.rindex(b"}") + 1
    parts = json.loads(line[start:end])
    parts["requestHeader"] = example["header"]
    parts["request" if example["kind"] == "produce" else "response"] = example["body"]
    body = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return line[:start] + body.encode() + line[end:]


def _name(example: dict[str, Any]) -> str:
    return f"{example['kafka']}-{example['kind']}-v{example['version']}"


@pytest.mark.parametrize("example", EXAMPLES, ids=_name)
def test_the_bytes_of_an_example(example: dict[str, Any]) -> None:
    assert PARSER.parse(line_of(example)).charged_bytes == example["bytes"]


def test_there_are_examples_of_every_version() -> None:
    found = {(example["kind"], example["version"]) for example in EXAMPLES}
    assert found == {("produce", v) for v in PRODUCE_VERSIONS} | {("fetch", v) for v in FETCH_VERSIONS}
    # Kafka 2.8 has other names in fetch responses, for every version that it knew.
    assert {e["version"] for e in EXAMPLES if (e["kafka"], e["kind"]) == ("2.8.2", "fetch")} == set(range(13))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"records":null', 22),
        ('"recordSet":null', 7),
        ('"abortedTransactions":[{', 29),
        ('"divergingEpoch":', 13),
        ('"currentLeader":', 7),
        ('"snapshotId":', 8),
        ('"nodeEndpoints":', 8),
        ('"transactionalId":"', 14),
    ],
)
def test_the_examples_hold_what_is_rare(text: str, lines: int) -> None:
    assert sum(text in line for line in _FILE.read_text(encoding="utf-8").splitlines()) == lines
