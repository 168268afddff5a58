"""Where requests spent their time, from lines of both forms; a line that cannot be read has no times."""

from __future__ import annotations

import gzip

import pytest

from kquota_spark.formats.request_log.broker_times import BrokerTimes
from tests.support.logs.log_lines import FETCH_V17_THROTTLED, PRODUCE_V9, T0_MS, changed
from tests.support.places import DATA, ROOT

SAMPLE = ROOT / "kquota_spark" / "samples" / "broker-1.kafka-request.log.gz"
TEXT = DATA / "kafka27-text"


def test_a_line_has_the_times_and_the_moment_when_a_handler_was_done() -> None:
    found = BrokerTimes().served(PRODUCE_V9)
    assert found is not None
    assert found[1:] == ("checkout", "checkout-svc", 0.061, 1.204, 0.05, 0.096, False)
    # 123 ms after T0; 0.096 ms to send, 0.05 ms in the response queue and 3.701 ms for replicas came later.
    assert found.handled_ms == pytest.approx(T0_MS + 123 - 0.096 - 0.05 - 3.701)


def test_a_throttled_line_is_marked_and_a_zone_moves_its_time() -> None:
    found = BrokerTimes("Europe/Berlin").served(FETCH_V17_THROTTLED)
    assert found is not None
    assert found.is_throttled
    assert found.handled_ms == pytest.approx(T0_MS + 1_001 - 0.096 - 0.05 - 3.701 - 3_600_000)


def test_a_client_without_an_id_has_an_empty_one() -> None:
    found = BrokerTimes().served(changed(PRODUCE_V9, ('"clientId":"checkout-svc"', '"clientId":null')))
    assert found is not None
    assert (found.user, found.client_id) == ("checkout", "")


def test_all_lines_of_a_real_broker_can_be_read() -> None:
    times = BrokerTimes()
    lines = gzip.decompress(SAMPLE.read_bytes()).splitlines()
    found = [times.served(line) for line in lines]
    assert len(found) == 5_000
    assert None not in found


def test_the_text_form_has_the_same_times() -> None:
    [path] = TEXT.glob("*.log*")
    lines = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).splitlines()
    found = [BrokerTimes().served(line) for line in lines]
    assert None not in found
    first = found[0]
    assert first is not None
    assert b"requestQueueTime:%.3f" % first.queue_ms in lines[0]
    assert b"localTime:%.3f" % first.local_ms in lines[0]
    throttled = [line for line, one in zip(lines, found, strict=True) if one is not None and one.is_throttled]
    assert throttled
    assert all(b",throttleTime:0," not in line for line in throttled)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[2024-11-20 12:00:00,123] DEBUG Completed request:",
        b"[2024-11-20 12:00:00,123] DEBUG Completed request:{",
        b"[2024-11-20 12:00:00,123] DEBUG Completed request:{} (kafka.request.logger)",
        b"[2024-11-20 12:00:00,123] DEBUG Completed request:RequestHeader(apiKey=",
        b"\xff\xfe Completed request:{}",
        PRODUCE_V9[:-90],
        changed(PRODUCE_V9, ("[2024-11-20 12:00:00,123]", "[2024-11-20 12:00:99,123]")),
        changed(PRODUCE_V9, ('"User:checkout"', '"nobody"')),
        changed(PRODUCE_V9, ('"requestQueueTimeMs":0.061', '"requestQueueTimeMs":-1')),
        changed(PRODUCE_V9, ('"localTimeMs":1.204', '"localTimeMs":1e300')),
    ],
)
def test_a_line_that_cannot_be_read_has_no_times(line: bytes) -> None:
    assert BrokerTimes().served(line) is None
