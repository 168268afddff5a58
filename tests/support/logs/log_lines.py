"""Lines of the request log for tests: as Kafka 3.9's own converters write them, the values invented."""

from __future__ import annotations

T0_MS = 1_732_104_000_000
"""2024-11-20 12:00:00 UTC."""

_TAIL = (
    '"totalTimeMs":5.112,"requestQueueTimeMs":0.061,"localTimeMs":1.204,"remoteTimeMs":3.701,"throttleTimeMs":0,'
    '"responseQueueTimeMs":0.05,"sendTimeMs":0.096,"securityProtocol":"SASL_SSL","principal":"User:checkout",'
    '"listener":"SASL_SSL","clientInformation":{"softwareName":"apache-kafka-java","softwareVersion":"3.9.0"}}'
    " (kafka.request.logger)"
)
_BILLING_TAIL = _TAIL.replace("User:checkout", "User:billing")

PRODUCE_V9 = (
    '[2024-11-20 12:00:00,123] DEBUG Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":0,'
    '"requestApiVersion":9,"correlationId":4711,"clientId":"checkout-svc","requestApiKeyName":"PRODUCE"},'
    '"request":{"transactionalId":null,"acks":-1,"timeoutMs":30000,"topicData":[{"name":"orders",'
    '"partitionData":[{"index":3,"recordsSizeInBytes":16384}]}]},"response":{"responses":[{"name":"orders",'
    '"partitionResponses":[{"index":3,"errorCode":0,"baseOffset":918273,"logAppendTimeMs":-1,"logStartOffset":0,'
    '"recordErrors":[],"errorMessage":null}]}],"throttleTimeMs":0},'
    '"connection":"10.0.0.11:9093-10.0.7.31:51514-27",' + _TAIL
).encode()

FETCH_V12 = (
    '[2024-11-20 12:00:00,423] DEBUG Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":1,'
    '"requestApiVersion":12,"correlationId":815,"clientId":"billing-consumer","requestApiKeyName":"FETCH"},'
    '"request":{"replicaId":-1,"maxWaitMs":500,"minBytes":1,"maxBytes":52428800,"isolationLevel":0,'
    '"sessionId":1234567,"sessionEpoch":42,"topics":[{"topic":"orders","partitions":[{"partition":3,'
    '"currentLeaderEpoch":7,"fetchOffset":918273,"lastFetchedEpoch":-1,"logStartOffset":-1,'
    '"partitionMaxBytes":1048576}]}],"forgottenTopicsData":[],"rackId":""},"response":{"throttleTimeMs":0,'
    '"errorCode":0,"sessionId":1234567,"responses":[{"topic":"orders","partitions":[{"partitionIndex":3,'
    '"errorCode":0,"highWatermark":918290,"lastStableOffset":918290,"logStartOffset":0,'
    '"abortedTransactions":null,"preferredReadReplica":-1,"recordsSizeInBytes":16384}]}]},'
    '"connection":"10.0.0.11:9093-10.0.7.44:40022-91",' + _BILLING_TAIL
).encode()

FETCH_V17_THROTTLED = (
    '[2024-11-20 12:00:01,001] DEBUG Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":1,'
    '"requestApiVersion":17,"correlationId":816,"clientId":"billing-consumer","requestApiKeyName":"FETCH"},'
    '"request":{"maxWaitMs":500,"minBytes":1,"maxBytes":52428800,"isolationLevel":0,"sessionId":1234567,'
    '"sessionEpoch":42,"topics":[{"topicId":"vNg5hPZjQ4yZ6oXwMJ1jXg","partitions":[{"partition":3,'
    '"currentLeaderEpoch":7,"fetchOffset":918273,"lastFetchedEpoch":-1,"logStartOffset":-1,'
    '"partitionMaxBytes":1048576}]}],"forgottenTopicsData":[],"rackId":""},"response":{"throttleTimeMs":1800,'
    '"errorCode":0,"sessionId":1234567,"responses":[]},"connection":"10.0.0.11:9093-10.0.7.44:40022-91",'
    + _BILLING_TAIL.replace('"throttleTimeMs":0', '"throttleTimeMs":1800')
).encode()

METADATA_V12 = (
    '[2024-11-20 12:00:02,000] DEBUG Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":3,'
    '"requestApiVersion":12,"correlationId":3,"clientId":"checkout-svc","requestApiKeyName":"METADATA"},'
    '"request":{"topics":[{"topicId":"AAAAAAAAAAAAAAAAAAAAAA","name":"orders"}],"allowAutoTopicCreation":true,'
    '"includeTopicAuthorizedOperations":false},"response":{"throttleTimeMs":0,"brokers":[],'
    '"clusterId":"p5Yy9cQZQh6p0o9T0b5c1A","controllerId":1,"topics":[]},'
    '"connection":"10.0.0.11:9093-10.0.7.31:51514-27",' + _TAIL
).encode()

API_VERSIONS_V3 = (
    '[2024-11-20 12:00:02,001] DEBUG Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":18,'
    '"requestApiVersion":3,"correlationId":0,"clientId":"checkout-svc","requestApiKeyName":"API_VERSIONS"},'
    '"request":{"clientSoftwareName":"apache-kafka-java","clientSoftwareVersion":"3.9.0"},'
    '"response":{"errorCode":0,"apiKeys":[],"throttleTimeMs":0},'
    '"connection":"10.0.0.11:9093-10.0.7.31:51514-27",' + _TAIL
).encode()

CREATE_TOPICS_V7_REFUSED = (
    '[2024-11-20 12:00:03,000] DEBUG Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":19,'
    '"requestApiVersion":7,"correlationId":9,"clientId":"adminclient-1","requestApiKeyName":"CREATE_TOPICS"},'
    '"request":{"topics":[{"name":"new-topic","numPartitions":60,"replicationFactor":3,"assignments":[],'
    '"configs":[]}],"timeoutMs":30000,"validateOnly":false},"response":{"throttleTimeMs":1000,"topics":['
    '{"name":"new-topic","topicId":"AAAAAAAAAAAAAAAAAAAAAA","errorCode":89,'
    '"errorMessage":"The throttling quota has been exceeded.","numPartitions":-1,"replicationFactor":-1,'
    '"configs":[]}]},"connection":"10.0.0.11:9093-10.0.7.31:51514-27",' + _TAIL
).encode()


def changed(line: bytes, *replacements: tuple[str, str]) -> bytes:
    """The line with each text replaced wherever it stands; it must stand somewhere."""
    for old, new in replacements:
        assert old.encode() in line, old
        line = line.replace(old.encode(), new.encode())
    return line


def produce_v8(records: int) -> bytes:
    """PRODUCE v8 with a record set of so many bytes."""
    return changed(PRODUCE_V9, ('"requestApiVersion":9', '"requestApiVersion":8'), ("16384", str(records)))


def fetch_by_id(version: int) -> bytes:
    """FETCH v13 or later with topic ids, answered."""
    return changed(
        FETCH_V12,
        ('"requestApiVersion":12', f'"requestApiVersion":{version}'),
        ('"topic":"orders"', '"topicId":"vNg5hPZjQ4yZ6oXwMJ1jXg"'),
    )
