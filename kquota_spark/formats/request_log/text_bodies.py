"""Sizes in the text form of the request log, from produce requests and fetch responses.

Both are read strictly, character by character: a size that is not printed exactly is refused, not guessed.
"""

from __future__ import annotations

import re

from msgspec import UNSET

from kquota_spark.formats.request_log.charged_bytes import (
    AbortedTransaction,
    FetchPartition,
    FetchTopic,
    ProducePartition,
    ProduceTopic,
)
from kquota_spark.formats.request_log.request import Unreadable

_TOPIC_NAME = r"[A-Za-z0-9._-]+"
_ITEM = re.compile(rf"(?:^|,)({_TOPIC_NAME})-(\d{{1,10}})=(\d{{1,10}})", re.ASCII)
_RESPONSE_HEAD = re.compile(
    r"\{(?:throttle_time_ms=\d+,)?(?:error_code=-?\d+,session_id=-?\d+,)?responses=\[", re.ASCII
)
_TOPIC = re.compile(rf"(?:(?<=\[)|,)\{{topic=({_TOPIC_NAME}),partition_responses=\[", re.ASCII)
_PARTITION = re.compile(
    r"(?:(?<=\[)|,)\{(?P<header>partition_header=\{)?partition=\d+,error_code=-?\d+,high_watermark=-?\d+"
    r"(?:,last_stable_offset=-?\d+)?(?:,log_start_offset=-?\d+)?"
    r"(?:,aborted_transactions=(?:null|\[(?P<aborted>[^\[\]]*)\]))?(?:,preferred_read_replica=-?\d+)?"
    r"(?(header)\}),record_set=",
    re.ASCII,
)
# Record sets as printed by 2.4 to 2.7, by 2.0 to 2.3, and an empty one before 2.4.
_RECORDS = re.compile(
    r"(?:MemoryRecords\(size=(?P<memory>\d{1,10}), buffer=[^()]*\)"
    r"|FileRecords\(size=(?P<file>\d{1,10}), file=[^()]*, start=\d+, end=\d+\)"
    r"|FileRecords\(file=[^()]*, start=(?P<start>\d{1,10}), end=(?P<end>\d{1,10})\)"
    r"|\[\])",
    re.ASCII,
)
_END = re.compile(r"(?:,_tagged_fields=\{\})?\}", re.ASCII)
_END_OF_LIST = re.compile(r"\](?:,_tagged_fields=\{\})?\}", re.ASCII)
_ONE_ABORTED = "producer_id="
_NOT_A_SLICE = 2**31 - 1


def produced_topics(sizes: str) -> list[ProduceTopic]:
    """Topics of a list like `orders-0=16384,my-topic-1=70`; the partition follows the last hyphen.

    Raises:
        Unreadable: the text is not such a list.
    """
    of_topic: dict[str, list[ProducePartition]] = {}
    at = 0
    while at < len(sizes):
        item = _ITEM.match(sizes, at)
        if item is None:
            raise Unreadable("text form: PRODUCE whose sizes are not as Kafka prints them")
        topic, _, size = item.groups()
        of_topic.setdefault(topic, []).append(ProducePartition(int(size)))
        at = item.end()
    return [ProduceTopic(partitions, name) for name, partitions in of_topic.items()]


def fetched_topics(response: str) -> list[FetchTopic]:
    """Topics of a fetch response that is not empty.

    Raises:
        Unreadable: it is not as Kafka prints it, or it lacks the size of a record set.
    """
    head = _RESPONSE_HEAD.match(response)
    if head is None:
        raise _not_as_printed()
    topics: list[FetchTopic] = []
    at = head.end()
    while (topic := _TOPIC.match(response, at)) is not None:
        partitions: list[FetchPartition] = []
        at = topic.end()
        while (partition := _PARTITION.match(response, at)) is not None:
            records = _RECORDS.match(response, partition.end())
            if records is None:
                raise Unreadable(
                    "text form: FETCH without the size of a record set: Kafka before 2.0 logs none, "
                    "and no version those that it converts"
                )
            partitions.append(_partition(partition, records))
            at = _end(_END, response, records.end())
        at = _end(_END_OF_LIST, response, at)
        topics.append(FetchTopic(partitions, topic.group(1)))
    if _end(_END_OF_LIST, response, at) != len(response):
        raise _not_as_printed()
    return topics


def _partition(partition: re.Match[str], records: re.Match[str]) -> FetchPartition:
    memory, file, start, end = records.group("memory", "file", "start", "end")
    if end is None:
        size = int(memory or file or 0)
    elif int(start) <= int(end) < _NOT_A_SLICE:
        size = int(end) - int(start)
    else:
        raise _not_as_printed()
    aborted = partition["aborted"]
    if aborted is None:
        has_field = ",aborted_transactions=" in partition[0]
        return FetchPartition(None if has_field else UNSET, size)
    return FetchPartition([AbortedTransaction(0, 0)] * aborted.count(_ONE_ABORTED), size)


def _end(pattern: re.Pattern[str], response: str, at: int) -> int:
    found = pattern.match(response, at)
    if found is None:
        raise _not_as_printed()
    return found.end()


def _not_as_printed() -> Unreadable:
    return Unreadable("text form: FETCH whose response is not as Kafka prints it")
