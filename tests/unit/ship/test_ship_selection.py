"""Which logs are shipped, and which of their lines are our own clients'."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kquota_spark.config.own_clients import ADMIN, DECISIONS, ENFORCER
from kquota_spark.config.settings import CollectJmx, Kafka, Ship
from kquota_spark.errors import UserError
from kquota_spark.ship.selection import LogFile, line_filter, log_files
from tests.support.quotas.fake_topic import FakeTopic, shipper


def request(client_id: str) -> bytes:
    return (
        b'[2026-11-21 07:00:00,123] DEBUG Completed request:{"isForwarded":false,"requestHeader":{'
        b'"requestApiKey":0,"requestApiVersion":9,"correlationId":-4711,"clientId":'
        + json.dumps(client_id).encode()
        + b","
        b'"requestApiKeyName":"PRODUCE"},"request":{"transactionalId":null}} (kafka.request.logger)'
    )


IDS = ["kquota-ship", 'a"b\\c', "für"]


@pytest.mark.parametrize(
    ("client_id", "is_ours"),
    [
        ("kquota-ship", True),
        ("kquota-ship-7", True),
        ("kquota-ship-", True),
        ("kquota-shipper", False),
        ("kquota-shi", False),
        ("Kquota-ship", False),
        ('kquota-ship"', False),
        ("kquota-ship\\", False),
        (" kquota-ship", False),
        ("", False),
        ('a"b\\c', True),
        ('a"b\\c-1', True),
        ('a"b', False),
        ('x","clientId":"kquota-ship', False),
        ('x"},"requestHeader":{"clientId":"kquota-ship"', False),
    ],
)
def test_lines_of_our_own_clients_are_known_by_the_header(client_id: str, is_ours: bool) -> None:
    assert line_filter(IDS)(request(client_id)) is is_ours


def test_a_client_id_that_is_not_ascii_is_known() -> None:
    assert line_filter(IDS)(request("X").replace(b'"X"', '"für"'.encode()))


@pytest.mark.parametrize(
    "line",
    [
        # A header of version 0 has no client id; the request has something that looks like one.
        b'[t] DEBUG Completed request:{"requestHeader":{"id":1},"request":{"clientId":"kquota-ship"}}',
        b'[t] DEBUG Completed request:{"request":{"requestHeader":{"clientId":"kquota-ship"}}}',
        b'"clientId":"kquota-ship"',
        b"",
        b'{"requestHeader":{' + b'"a":1,' * 200 + b'"clientId":"kquota-ship"}}',
    ],
)
def test_a_client_id_elsewhere_is_none(line: bytes) -> None:
    assert not line_filter(IDS)(line)


def test_lines_of_our_own_clients_are_counted_not_shipped(log: Path) -> None:
    log.write_bytes(b"\n".join([request("app"), request("kquota-audit-3"), request("app"), b""]))
    topic = FakeTopic()
    with shipper(log, topic, exclude_client_ids=["kquota-ship", "kquota-audit"]) as one:
        counts = one.run_once()
    assert topic.lines == [request("app"), request("app")]
    assert (counts.lines, counts.excluded) == (2, 1)
    assert (topic.heartbeats[0]["lines"], topic.heartbeats[0]["excluded"]) == (2, 1)


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ([], "no log to ship"),
        (["kafka-request.log"], "'kafka-request.log', expected <broker id>=<path>"),
        (["x=/a"], "'x=/a', expected"),
        (["-1=/a"], "'-1=/a', expected"),
        (["1="], "'1=', expected"),
        (["1=/a", "1=/b"], "'1=/b': the broker or the path is there twice"),
        (["1=/a", "2=/a"], "'2=/a': the broker or the path is there twice"),
    ],
)
def test_a_bad_file_option_is_told(texts: list[str], problem: str) -> None:
    with pytest.raises(UserError, match=f"^--file: {problem}"):
        log_files(texts, "--file")


def test_a_path_may_hold_an_equals_sign() -> None:
    assert log_files(["7=/a=b"], "--file") == [LogFile(7, Path("/a=b"))]


def test_the_lines_of_our_programs_are_left_out_and_who_edited_a_quota_is_not() -> None:
    is_ours = line_filter(Ship().exclude_client_ids)
    programs = (Ship().client_id, Kafka().client_id, CollectJmx().client_id, ENFORCER, DECISIONS)
    assert [is_ours(request(name)) for name in programs] == [True] * 5
    assert [is_ours(request(name)) for name in (ADMIN, "kquota", "rdkafka", "kquota-enforcers")] == [
        False
    ] * 4
