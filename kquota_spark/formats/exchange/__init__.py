"""Quota files of other tools, each read into a `QuotaSet` and written from one: import, export and diff use them.

One module a format with `read(text: str) -> QuotaSet` and `write(quotas: QuotaSet) -> str`; `read` raises ValueError
with one line a problem, each naming its place in the text. What a format cannot say, `write` refuses (ValueError)
rather than leaving it out. `registry` has them all.

In reading order: checks, declared, documents, kafka_configs, kfk, rpk, strimzi, terraform, registry.
"""

NAMES = ("declared", "kfk", "rpk", "kafka-configs", "kafka-configs-commands", "strimzi", "terraform")
"""The names in the registry, here for those who do not need the formats themselves."""
