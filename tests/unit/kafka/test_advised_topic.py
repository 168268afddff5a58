"""The commands that prepare a cluster are those of the pages."""

from __future__ import annotations

import re
import shlex

from kquota_spark.kafka.advised_topic import audit_grants, replicas, shipper_grants, topic_command
from tests.support.places import ROOT

_DOCS = ROOT / "kquota_spark" / "docs"
SERVER, TOPIC = "broker1:9092", "kquota.request-log"


def commands(page: str, program: str) -> list[list[str]]:
    """The words of each command of a program on a page."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (_DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line))[:1] == [program]]


def test_the_topic_is_created_as_on_the_page_on_operating() -> None:
    assert commands("operating.md", "kafka-topics.sh") == [shlex.split(topic_command(SERVER, TOPIC))]


def test_the_rights_are_those_of_the_page_on_rights() -> None:
    own = [*shipper_grants(SERVER, "kquota-ship", TOPIC), *audit_grants(SERVER, "kquota-audit", TOPIC)]
    of_page = commands("rights.md", "kafka-acls.sh")
    assert of_page[: len(own)] == [shlex.split(command) for command in own]


def test_a_small_cluster_gets_fewer_replicas() -> None:
    assert [replicas(brokers) for brokers in (1, 2, 3, 9)] == [1, 2, 3, 3]


def test_a_user_with_odd_characters_is_one_word() -> None:
    [command] = shipper_grants(SERVER, "CN=a b,O=$(x)", TOPIC)
    assert "User:CN=a b,O=$(x)" in shlex.split(command)
