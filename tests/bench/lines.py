"""Request-log lines of the shapes that real brokers write, for 1,000 identities on 4 brokers unless asked otherwise.

Deterministic: line i of a population is the same in every run. Shapes are those of the captures in the tests' data:
PRODUCE v9 and v11, FETCH v12 and v17, a METADATA request and a follower's fetch among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache
from typing import NamedTuple

BROKERS = 4
START_MS = 1_795_239_600_000  # 2026-11-21 05:40:00 UTC
LINES_PER_S = 30_000
"""Rate of the log's own clock: the load that the audit is to keep up with."""

_TAIL = (
    '"connection":"10.0.0.{broker}:9092-10.1.{host}:{port}-{identity}","totalTimeMs":5.112,'
    '"requestQueueTimeMs":0.061,"localTimeMs":1.204,"remoteTimeMs":{remote},"throttleTimeMs":0,'
    '"responseQueueTimeMs":0.05,"sendTimeMs":0.096,"securityProtocol":"SASL_SSL","principal":"User:{user}",'
    '"listener":"SASL_SSL","clientInformation":{{"softwareName":"apache-kafka-java","softwareVersion":"3.9.1"}}}}'
    " (kafka.request.logger)"
)
_HEAD = (
    '[{time}] DEBUG Completed request:{{"isForwarded":false,"requestHeader":{{"requestApiKey":{key},'
    '"requestApiVersion":{version},"correlationId":{correlation},"clientId":"{client}",'
    '"requestApiKeyName":"{name}"}},'
)
_PRODUCE = (
    '"request":{{"transactionalId":null,"acks":-1,"timeoutMs":30000,"topicData":[{{"name":"orders",'
    '"partitionData":[{{"index":0,"recordsSizeInBytes":{size}}},{{"index":2,"recordsSizeInBytes":{size}}}]}}]}},'
    '"response":{{"responses":[{{"name":"orders","partitionResponses":[{{"index":0,"errorCode":0,'
    '"baseOffset":{correlation},"logAppendTimeMs":-1,"logStartOffset":0,"recordErrors":[],"errorMessage":null}},'
    '{{"index":2,"errorCode":0,"baseOffset":{correlation},"logAppendTimeMs":-1,"logStartOffset":0,'
    '"recordErrors":[],"errorMessage":null}}]}}],"throttleTimeMs":0}},'
)
_FETCH_REQUEST = (
    '"maxWaitMs":500,"minBytes":1,"maxBytes":52428800,"isolationLevel":0,"sessionId":1247513543,'
    '"sessionEpoch":{correlation},"topics":[{{{topic},"partitions":[{{"partition":1,"currentLeaderEpoch":0,'
    '"fetchOffset":{correlation},"lastFetchedEpoch":0,"logStartOffset":-1,"partitionMaxBytes":1048576}}]}}],'
    '"forgottenTopicsData":[],"rackId":""}},"response":{{"throttleTimeMs":0,"errorCode":0,"sessionId":1247513543,'
    '"responses":[{{{topic},"partitions":[{{"partitionIndex":1,"errorCode":0,"highWatermark":600000,'
    '"lastStableOffset":600000,"logStartOffset":0,"abortedTransactions":null,"preferredReadReplica":-1,'
    '"recordsSizeInBytes":{size}}}]}}]}},'
)
_FETCH_12 = '"request":{{"replicaId":-1,' + _FETCH_REQUEST
_FETCH_17 = '"request":{{' + _FETCH_REQUEST
_FOLLOWER = '"request":{{"replicaState":{{"replicaId":2,"replicaEpoch":45}},' + _FETCH_REQUEST
_METADATA = (
    '"request":{{"topics":[{{"topicId":"AAAAAAAAAAAAAAAAAAAAAA","name":"orders"}}],"allowAutoTopicCreation":true,'
    '"includeTopicAuthorizedOperations":false}},"response":{{"throttleTimeMs":0,"brokers":[],'
    '"clusterId":"p5Yy9cQZQh6p0o9T0b5c1A","controllerId":1,"topics":[]}},'
)
_NAMED, _BY_ID = '"topic":"orders"', '"topicId":"vNg5hPZjQ4yZ6oXwMJ1jXg"'

# Of 20 lines: 10 produce, 8 consumer fetches, one follower fetch, one metadata request.
_SHAPES = (
    *((0, "PRODUCE", 9, _PRODUCE, ""),) * 5,
    *((0, "PRODUCE", 11, _PRODUCE, ""),) * 5,
    *((1, "FETCH", 12, _FETCH_12, _NAMED),) * 4,
    *((1, "FETCH", 17, _FETCH_17, _BY_ID),) * 4,
    (1, "FETCH", 17, _FOLLOWER, _BY_ID),
    (3, "METADATA", 12, _METADATA, ""),
)
COUNTED_OF_20 = {"produce": 10, "fetch": 8}
_COLD_OF_100 = 1
"""Of a skewed population: lines that are not those of the hot bucket."""


class Line(NamedTuple):
    """A line and the broker that wrote it."""

    broker_id: int
    text: bytes


class Population(NamedTuple):
    """The clients that the lines are of.

    Attributes:
        identities: pairs of a user and a client id; 55 % of them produce, the others fetch.
        client_ids: how many different client ids they have, a multiple of ten. Ten identities share a user.
        is_skewed: whether 99 of 100 lines are produce requests of the first identity on broker 1: one bucket.
    """

    identities: int = 1_000
    client_ids: int = 100
    is_skewed: bool = False

    @property
    def producers(self) -> int:
        """How many of the identities produce; they come first."""
        return self.identities * 55 // 100

    def names(self, identity: int) -> tuple[str, str]:
        """User and client id."""
        return f"user-{identity // 10}", f"app-{identity % self.client_ids}"

    def expected(self, count: int) -> dict[str, int]:
        """How many of the first lines a bandwidth quota counts, by quota type.

        Args:
            count: of the lines; a multiple of 20, and of 2,000 if they are skewed.
        """
        if count % (2_000 if self.is_skewed else 20):
            raise ValueError(f"{count} lines are not whole rounds of all shapes")
        cold = count * _COLD_OF_100 // 100 if self.is_skewed else count
        found = {quota_type: cold // 20 * of_20 for quota_type, of_20 in COUNTED_OF_20.items()}
        return {**found, "produce": found["produce"] + count - cold}


EVEN = Population()


def lines(
    indexes: range, delay_ms: int = 0, lines_per_s: int = LINES_PER_S, population: Population = EVEN
) -> Iterator[Line]:
    """Some of the lines, in the order of their times, which are `delay_ms` later than they would be."""
    parts = [(key, name, version, _HEAD + body + _TAIL, topic) for key, name, version, body, topic in _SHAPES]
    for index in indexes:
        shape, identity, broker_id = _drawn(index, population)
        key, name, version, template, topic = parts[shape]
        user, client = population.names(identity)
        time_ms = _time_ms(index, delay_ms, lines_per_s)
        text = template.format(
            time=_log_time(time_ms),
            key=key,
            name=name,
            version=version,
            correlation=index,
            client=client,
            size=500 + index * 31 % 9_000,
            topic=topic,
            broker=broker_id,
            host=f"{identity // 250 % 250}.{identity % 250}",
            port=40_000 + identity % 25_000,
            identity=identity,
            user=user,
            remote=0.5 if key == 0 else 12.25,
        )
        yield Line(broker_id, text.encode())


def closing_heartbeats(count: int, delay_ms: int = 0) -> list[Line]:
    """What a shipper sends at the end of each broker's lines; it closes the last seconds."""
    time_ms = _time_ms(count, delay_ms, LINES_PER_S)
    text = f'{{"kquota_heartbeat":{{"time_ms":{time_ms},"is_end":true}}}}'.encode()
    return [Line(broker_id, text) for broker_id in range(1, BROKERS + 1)]


def _time_ms(index: int, delay_ms: int, lines_per_s: int) -> int:
    return START_MS + delay_ms + index * 1_000 // lines_per_s


def _drawn(index: int, population: Population) -> tuple[int, int, int]:
    """Shape, identity and broker of a line."""
    if population.is_skewed:
        index, hot = divmod(index, 100)
        if hot >= _COLD_OF_100:
            return hot % 10, 0, 1
    # Steps that have no factor in common with 20 and 1,000: every identity gets every shape and broker.
    shape = index * 7 % 20
    place, producers = index * 13 // 20, population.producers
    # A client id is a producer or a consumer, as in the captures.
    is_producer = _SHAPES[shape][0] == 0
    identity = place % producers if is_producer else producers + place % (population.identities - producers)
    broker_id = index // 20_000 % BROKERS + 1 if index % 3 == 0 else index % BROKERS + 1
    return shape, identity, broker_id


def _log_time(time_ms: int) -> str:
    # No datetime in the hot path.
    day, rest_ms = divmod(time_ms, 86_400_000)
    seconds, milli = divmod(rest_ms, 1_000)
    return f"{_date(day)} {seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02},{milli:03}"


@cache
def _date(day: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


QUOTAS = """\
- {user: user-1, client_id: app-1, type: producer_byte_rate, value: 20000}
- {user: user-2, client_id: <default>, type: producer_byte_rate, value: 30000}
- {user: user-3, client_id: null, type: producer_byte_rate, value: 50000}
- {user: <default>, client_id: app-40, type: producer_byte_rate, value: 25000}
- {user: <default>, client_id: null, type: producer_byte_rate, value: 120000}
- {user: null, client_id: app-50, type: consumer_byte_rate, value: 40000}
- {user: null, client_id: <default>, type: consumer_byte_rate, value: 90000}
"""
