"""The formats by name, and the guess which of them a file has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from kquota_spark.formats.exchange import declared, kafka_configs, kfk, rpk, strimzi, terraform
from kquota_spark.model.quotas.quota_set import QuotaSet

_CHECKED_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class Format:
    """A format of quota files."""

    name: str
    """Its name in --format."""
    about: str
    """The tool that it belongs to, in a few words."""
    read: Callable[[str], QuotaSet]
    """Reads its text; ValueError with one line per problem."""
    write: Callable[[QuotaSet], str]
    """Writes its text; ValueError with one line per quota that it cannot express."""
    sign: str
    """Regular expression for a line at the beginning of its files, and of no others."""
    suffixes: tuple[str, ...] = ()
    """File name suffixes that only this format has."""
    says: str = "all quotas"
    """The quotas that it can express, in a few words."""
    read_at: Callable[[str, int], QuotaSet] | None = None
    """Like `read`, for one moment (epoch ms); None for a format without times."""


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
"""All formats by name, our own first."""


def guess(text: str, file_name: str = "") -> list[Format]:
    """The formats that a file may have, by its content, then by its suffix; empty if none matches."""
    beginning = text.removeprefix("\ufeff")[:_CHECKED_CHARACTERS]  # editors on Windows write this mark
    found = [each for each in FORMATS.values() if re.search(each.sign, beginning, re.MULTILINE)]
    suffix = PurePath(file_name).suffix.lower()
    return [each for each in found or FORMATS.values() if suffix in each.suffixes] or found
