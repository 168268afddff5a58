"""The formats by name, and which of them a file is in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from kquota_spark.formats.exchange import declared, kafka_configs, kfk, rpk, strimzi, terraform
from kquota_spark.model.quotas.quota_set import QuotaSet

_LOOKED_AT_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class Format:
    """A format of quota files.

    Attributes:
        name: what --format calls it.
        about: whose it is, in a few words.
        read: its text to quotas; ValueError with one line a problem.
        write: quotas to its text; ValueError with one line for each that it cannot say.
        sign: regular expression for a line in the beginning of its files, and of no others.
        suffixes: of its files; none of its own if others have it too.
        says: which quotas it can say, in a few words.
        read_at: as `read`, of one moment; None for a format that tells of one moment only.
    """

    name: str
    about: str
    read: Callable[[str], QuotaSet]
    write: Callable[[QuotaSet], str]
    sign: str
    suffixes: tuple[str, ...] = ()
    says: str = "all quotas"
    read_at: Callable[[str, int], QuotaSet] | None = None


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format("declared", "our own quotas.yaml, names as they are", declared.read, declared.write,
               r"^- *(?:\{ *)?[\"']?(?:user|client_id|ip|type|value|from_ms|to_ms)[\"']? *:",
               read_at=declared.read_at),
        Format("kfk", "the JSON of kfk-quotas", kfk.read, kfk.write, r"\"clientEntity\"\s*:"),
        Format("rpk", "rpk cluster quotas describe and import, JSON or YAML", rpk.read, rpk.write,
               r"\A\s*\{\s*\"quotas\"\s*:|^quotas:"),
        Format("kafka-configs", "the sentences of kafka-configs.sh --describe", kafka_configs.read,
               kafka_configs.write, r"^(?:Quota c|C)onfigs for .* are"),
        Format("kafka-configs-commands", "a script of kafka-configs.sh --alter; written only",
               kafka_configs.refuse_commands, kafka_configs.write_commands,
               r"^kafka-configs(?:\.sh)? .*--alter ", suffixes=(".sh",)),
        Format("strimzi", "KafkaUser resources of Strimzi, named users only", strimzi.read, strimzi.write,
               r"^[ \t-]*[\"']?apiVersion[\"']?: *[\"']?kafka\.strimzi\.io/", says="users by name"),
        Format("terraform", "kafka_quota of the Mongey/kafka provider; read as terraform show -json", terraform.read,
               terraform.write, r"^[ \t]*resource[ \t]+\"kafka_quota|\"terraform_version\"\s*:",
               suffixes=(".tf",), says="all but pairs"),
    )
}  # fmt: skip
"""By name, our own first."""


def guess(text: str, file_name: str = "") -> list[Format]:
    """The formats that a file may be in, by its content, then by its suffix; empty if none has left its sign."""
    beginning = text.removeprefix("\ufeff")[:_LOOKED_AT_CHARACTERS]  # as editors on Windows write it
    found = [each for each in FORMATS.values() if re.search(each.sign, beginning, re.MULTILINE)]
    suffix = PurePath(file_name).suffix.lower()
    return [each for each in found or FORMATS.values() if suffix in each.suffixes] or found
