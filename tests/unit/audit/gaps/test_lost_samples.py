"""JMX messages that expired while the job was stopped: the start prints how many, from the checkpoint and Kafka."""

from __future__ import annotations

import json
from pathlib import Path

from kquota_spark.audit.gaps.lost_samples import Begins, Places, expired_samples
from kquota_spark.config.settings import Kafka, Settings


def test_only_messages_that_kafka_has_no_more_and_nobody_read_are_reported(tmp_path: Path) -> None:
    settings = Settings(checkpoints=str(tmp_path), kafka=Kafka(jmx_topic="jmx"))
    asked = list[set[tuple[str, int]]]()

    def begins_of(_: Settings, places: Places) -> Begins:
        asked.append(set(places))
        return {("jmx", 0): 40, ("jmx", 1): 1_530, ("jmx", 2): 7}  # partition 3 does not answer

    assert expired_samples(settings, begins_of) == []
    for name in ("offsets", "commits"):
        (tmp_path / "jmx" / name).mkdir(parents=True)
    (tmp_path / "jmx" / "metadata").write_text('{"id":"q"}', encoding="utf-8")
    assert expired_samples(settings, begins_of) == []
    assert asked == []
    read_to = {"0": 40, "1": 30, "2": 8, "3": 5}
    # The second micro-batch was planned and not finished: it is read again.
    for batch, offsets in ((0, read_to), (1, {"0": 90, "1": 2_000, "2": 90, "3": 90})):
        lines = ("v1", "{}", json.dumps({"jmx": offsets}))
        (tmp_path / "jmx" / "offsets" / str(batch)).write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "jmx" / "commits" / "0").write_text("v1\n{}", encoding="utf-8")
    [line] = expired_samples(settings, begins_of)
    assert line == (
        "jmx partition 1: 1,500 JMX messages from offset 30 on expired before they were read; their seconds have "
        "no verdict by JMX: raise retention.ms of the topic above the longest pause of the audit"
    )
    assert asked == [{("jmx", partition) for partition in range(4)}]
