"""The parts of a bundle, each in one file: lines, rules, samples, the result, and the text for the tenant.

Lines and rules are the inputs. The other parts follow from them by `rebuilding.rebuild`, here and on any machine.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from kquota_spark.evidence.chain import Chain, chain_of, chain_text, title_of
from kquota_spark.evidence.lines import LINE_NAMES, Charge, Line, charges, usage_of
from kquota_spark.evidence.rebuilding import Inputs, Rebuilt, governed_rows, rebuild
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import parse_entity
from kquota_spark.model.quotas.quota_types import QuotaType, parse_key
from kquota_spark.model.quotas.resolve import candidates
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod
from kquota_spark.model.replay.replay import Verdict
from kquota_spark.pipeline.bucket_judge import Configs
from kquota_spark.pipeline.known import BrokerWindows, Known, ReportedWindows
from kquota_spark.pipeline.sent import BucketTags, Manager

LINES, RULES, SAMPLES, RESULT, TEXT = (
    "lines.jsonl",
    "rules.json",
    "samples.json",
    "result.json",
    "evidence.txt",
)
PARTS = (LINES, RULES, SAMPLES, RESULT, TEXT)
"""Names of the parts in the order of the chain."""
_COLUMNS = 80
_LABEL = 10


class Subject(NamedTuple):
    """What a bundle is about: the manager, the bucket, the second (epoch ms), and the place of the chosen request."""

    manager: Manager
    bucket: BucketTags
    second_ms: int
    place: int


def json_bytes(value: Any) -> bytes:
    """A value as JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def lines_bytes(lines: Iterable[Line]) -> bytes:
    """One line of JSON per log line."""
    return b"".join(json_bytes(line) + b"\n" for line in lines)


def rules_of(clients: Iterable[tuple[str, str]], book: RuleBook) -> list[RulePeriod]:
    """All quotas that can govern some clients, at any time."""
    entities = dict.fromkeys(entity for client in clients for entity in candidates(*client))
    return [rule for entity in entities for rule in book.of(entity)]


def rules_value(
    rules: Iterable[RulePeriod], known: Known, configs: Configs, broker_id: int
) -> dict[str, Any]:
    """The part `rules.json`: quotas, windows and gaps.

    Args:
        rules: the quotas, with masked names.
        known: what is known of the cluster.
        configs: the windows of the decision.
        broker_id: the broker of the decision.
    """
    governor = known.governor
    defaults = governor.static_defaults if isinstance(governor, RuleGovernor) else {}
    return {
        "rules": [
            {
                "entity": str(rule.entity),
                "values": {key.value: value for key, value in rule.values.items()},
                "valid_from_ms": rule.valid_from_ms,
                "valid_to_ms": rule.valid_to_ms,
                "version": rule.version,
                "certain_from_ms": rule.certain_from_ms,
            }
            for rule in rules
        ],
        "static_defaults": {quota_type.value: value for quota_type, value in defaults.items()},
        "known_through_ms": known.known_through_ms,
        "windows": known.windows.settings.name,
        "windows_by_time": [list(each) for each in known.windows.reported.get(broker_id, ())],
        "mutation_windows": [configs.mutations.num_samples, configs.mutations.window_ms],
        "gaps": [list(gap) for gap in known.gaps.get(broker_id, ())],
    }


def known_of(value: Mapping[str, Any], broker_id: int) -> tuple[Known, Configs]:
    """The inverse of `rules_value`; a mistake raises ValueError, KeyError or TypeError."""
    rules = [
        RulePeriod(
            parse_entity(rule["entity"]),
            {parse_key(key): float(number) for key, number in rule["values"].items()},
            rule["valid_from_ms"],
            rule["valid_to_ms"],
            rule["version"],
            rule["certain_from_ms"],
        )
        for rule in value["rules"]
    ]
    defaults = {QuotaType(name): float(number) for name, number in value["static_defaults"].items()}
    sampled = RateConfig.parse(value["windows"])
    windows = BrokerWindows(
        sampled, {broker_id: [ReportedWindows(*each) for each in value["windows_by_time"]]}
    )
    gaps = {broker_id: [(from_ms, to_ms) for from_ms, to_ms in value["gaps"]]}
    known = Known(RuleGovernor(RuleBook(rules), defaults), value["known_through_ms"], windows, gaps)
    return known, Configs(sampled, RateConfig(*value["mutation_windows"]))


def bundle_charges(lines: Sequence[Line], manager: Manager) -> list[Charge]:
    """What the lines of a bundle charge; the numbers of their connections order the requests of a millisecond."""
    numbers = {line["connection"] for line in lines if line["connection"] is not None}
    by_hash = {crc32(str(number).encode()): number for number in numbers}
    texts = [
        {
            **{name: line[name] for name in LINE_NAMES},
            "connection": None if line["connection"] is None else str(line["connection"]),
        }
        for line in lines
    ]
    found = charges(texts, manager.broker_id, manager.quota_type)
    if manager.quota_type is QuotaType.CONTROLLER_MUTATION:
        return found
    return [
        charge._replace(
            point=charge.point._replace(connection_hash=by_hash.get(charge.point.connection_hash, 0))
        )
        for charge in found
    ]


class Rebuild(NamedTuple):
    """A decision rebuilt from the inputs of a bundle: the charges, and the chain of the request that is explained."""

    inputs: Inputs
    charged: list[Charge]
    rebuilt: Rebuilt
    chain: Chain


def rebuild_from(subject: Subject, lines: Sequence[Line], rules: Mapping[str, Any]) -> Rebuild:
    """Rebuild a decision from lines and rules.

    Raises:
        ValueError: the lines have no request of the bucket in the second. A part of another form raises KeyError or
            TypeError as well.
    """
    manager, bucket, second_ms, place = subject
    known, configs = known_of(rules, manager.broker_id)
    charged = bundle_charges(lines, manager)
    rows = governed_rows(usage_of(charged, manager.cluster_id), known, manager, bucket)
    inputs = Inputs(manager, bucket, second_ms, rows, configs)
    rebuilt = rebuild(inputs)
    if not 0 <= place < len(rebuilt.verdicts):
        raise ValueError(f"no request {place} in this second")
    return Rebuild(inputs, charged, rebuilt, chain_of(rebuilt, lines, charged, place))


def samples_value(found: Rebuild) -> dict[str, Any]:
    """The part `samples.json`: the ring before the second, its requests, and the ring at the explained request."""
    return {
        "before": _ring_of(found.rebuilt),
        "requests": [_request(verdict) for verdict in found.rebuilt.verdicts],
        "samples": [list(sample) for sample in found.chain.samples],
    }


def _ring_of(rebuilt: Rebuilt) -> Any:
    """The samples before the second, or the token bucket: what the log shows of earlier requests' amounts."""
    if rebuilt.before is None:
        return None
    match rebuilt.row["quota_type"]:
        case QuotaType.REQUEST:
            return rebuilt.before[1:]
        case QuotaType.CONTROLLER_MUTATION:
            return rebuilt.before[2:]
        case _:
            return rebuilt.before[1]


def _request(verdict: Verdict) -> dict[str, Any]:
    return {
        "record_time_ms": verdict.point.record_time_ms,
        "amount": verdict.point.amount,
        "window_ms": verdict.window_ms,
        "rate_per_s": verdict.rate_per_s,
        "rate_at_most_per_s": verdict.rate_at_most_per_s,
        "limit_per_s": verdict.governing.limit_per_s,
        "throttle_ms": verdict.throttle_ms,
        "observed_throttle_ms": verdict.point.observed_throttle_ms,
        "outcome": verdict.outcome.value,
        "cause": None if verdict.cause is None else verdict.cause.value,
    }


def text_of(found: Rebuild, note: str) -> str:
    """The part `evidence.txt`: the chain in at most 80 columns.

    Args:
        found: the rebuilt decision.
        note: a sentence about where the lines come from.
    """
    paragraphs = [("", title_of(found.rebuilt.row)), *chain_text(found.chain), ("lines", note)]
    lines = []
    for label, text in paragraphs:
        indent = " " * _LABEL if label else ""
        lines += textwrap.wrap(
            text, _COLUMNS, initial_indent=label.ljust(len(indent)), subsequent_indent=indent
        )
    return "\n".join(lines) + "\n"
