"""The formats by name, and which of them a file is in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from kquota_spark.formats.exchange import (
    declared,
    kafka_configs,
    kafka_configs_commands,
    kfk,
    rpk,
    strimzi,
    terraform,
    znode_tree,
)
from kquota_spark.model.quotas.quota_set import QuotaSet

_LOOKED_AT_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class Format:
    """A format of quota files.

    Attributes:
        name: what --format calls it.
        about: whose it is, in a few words.
        suffixes: of its files; none of its own if others have it too.
        read: its text to quotas; ValueError with one line a problem.
        write: quotas to its text; ValueError with one line for each that it cannot say.
        sign: found in the beginning of its files, and of no others.
        says: which quotas it can say, in a few words.
        read_at: as `read`, of one moment; None for a format that tells of one moment only.
    """

    name: str
    about: str
    suffixes: tuple[str, ...]
    read: Callable[[str], QuotaSet]
    write: Callable[[QuotaSet], str]
    sign: re.Pattern[str]
    says: str = "all quotas"
    read_at: Callable[[str, int], QuotaSet] | None = None


def _sign(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format(
            "declared",
            "our own quotas.yaml, names as they are",
            (),
            declared.read,
            declared.write,
            _sign(r"^- *(?:\{ *)?[\"']?(?:user|client_id|ip|type|value|from_ms|to_ms)[\"']? *:"),
            read_at=declared.read_at,
        ),
        Format(
            "kfk",
            "the JSON of kfk-quotas",
            (),
            kfk.read,
            kfk.write,
            _sign(r"\"clientEntity\"\s*:"),
        ),
        Format(
            "rpk",
            "rpk cluster quotas describe and import, JSON or YAML",
            (),
            rpk.read,
            rpk.write,
            _sign(r"\A\s*\{\s*\"quotas\"\s*:|^quotas:"),
        ),
        Format(
            "kafka-configs",
            "the sentences of kafka-configs.sh --describe",
            (),
            kafka_configs.read,
            kafka_configs.write,
            _sign(r"^(?:Quota c|C)onfigs for .* are"),
        ),
        Format(
            "kafka-configs-commands",
            "a script of kafka-configs.sh --alter; written only",
            (".sh",),
            kafka_configs_commands.read,
            kafka_configs_commands.write,
            _sign(r"^kafka-configs(?:\.sh)? .*--alter "),
        ),
        Format(
            "strimzi",
            "KafkaUser resources of Strimzi, named users only",
            (),
            strimzi.read,
            strimzi.write,
            _sign(r"^[ \t-]*[\"']?apiVersion[\"']?: *[\"']?kafka\.strimzi\.io/"),
            says="users by name",
        ),
        Format(
            "terraform",
            "kafka_quota resources of the Mongey/kafka provider",
            (".tf",),
            terraform.read,
            terraform.write,
            _sign(r"^[ \t]*resource[ \t]+\"kafka_quota"),
            says="all but pairs",
        ),
        Format(
            "znode-tree",
            "nodes of ZooKeeper as a JSON object of paths and payloads",
            (),
            znode_tree.read,
            znode_tree.write,
            _sign(r"^\{?\s*\"/config/(?:users|clients|ips)[/\"]"),
        ),
    )
}
"""By name, our own first."""


def guess(text: str, file_name: str = "") -> list[Format]:
    """The formats that a file may be in, by its content, then by its suffix; empty if none has left its sign.

    Args:
        text: of the file.
        file_name: where it is known.
    """
    beginning = text.removeprefix("\ufeff")[:_LOOKED_AT_CHARACTERS]  # as editors on Windows write it
    found = [each for each in FORMATS.values() if each.sign.search(beginning)]
    suffix = PurePath(file_name).suffix.lower()
    return [each for each in found or FORMATS.values() if suffix in each.suffixes] or found
