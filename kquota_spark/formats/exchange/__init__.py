"""Quota files of other tools, each read into a `QuotaSet` and written from one: import, export and diff use them.

Each format is one module with `read(text: str) -> QuotaSet` and `write(quotas: QuotaSet) -> str`. `read` raises
ValueError with one line per problem, each with its place in the text. `write` raises ValueError for quotas that the
format cannot express; it leaves none out. `registry` lists all formats.

In reading order: checks, declared, documents, kafka_configs, kfk, rpk, strimzi, terraform, registry.
"""

NAMES = ("declared", "kfk", "rpk", "kafka-configs", "kafka-configs-commands", "strimzi", "terraform")
"""The names in the registry, for callers that do not need the formats themselves."""
