"""The law: Kafka's client-quota arithmetic. Standard library only; no clock, no I/O, time is an argument in ms.

The same code runs on Spark's workers, in the offline commands and as the oracle of the tests. `docs/model.md` lists
what each public name is for. Every public name can be imported from here, and its module is loaded on first use.

Folders, in reading order: quotas, compare, measure, replay, loops, attribution, govern, simulation, budgets,
rightsize.

In reading order: owners.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kquota_spark.model.govern.callback_governor import CallbackGovernor as CallbackGovernor
    from kquota_spark.model.govern.govern import RuleGovernor as RuleGovernor
    from kquota_spark.model.measure.apis import Api as Api
    from kquota_spark.model.measure.combining import combined as combined
    from kquota_spark.model.measure.connection_rate import ConnectionRates as ConnectionRates
    from kquota_spark.model.measure.sampled_rate import FloatRing as FloatRing
    from kquota_spark.model.measure.sampled_rate import RateConfig as RateConfig
    from kquota_spark.model.measure.sampled_rate import RingVariant as RingVariant
    from kquota_spark.model.measure.sampled_rate import SampleRing as SampleRing
    from kquota_spark.model.measure.simple_rate import ReplicationRate as ReplicationRate
    from kquota_spark.model.measure.throttle_time import bounded_throttle_time_ms as bounded_throttle_time_ms
    from kquota_spark.model.measure.throttle_time import throttle_time_ms as throttle_time_ms
    from kquota_spark.model.measure.token_bucket import TokenBucket as TokenBucket
    from kquota_spark.model.quotas.enabled_types import enabled_types as enabled_types
    from kquota_spark.model.quotas.entities import DEFAULT as DEFAULT
    from kquota_spark.model.quotas.entities import Entity as Entity
    from kquota_spark.model.quotas.entities import IpEntity as IpEntity
    from kquota_spark.model.quotas.entities import parse_entity as parse_entity
    from kquota_spark.model.quotas.ip_quotas import resolve_ip as resolve_ip
    from kquota_spark.model.quotas.mbean_names import mbean_name as mbean_name
    from kquota_spark.model.quotas.mbean_names import parse_mbean_name as parse_mbean_name
    from kquota_spark.model.quotas.names import desanitise as desanitise
    from kquota_spark.model.quotas.names import sanitise as sanitise
    from kquota_spark.model.quotas.principals import Principal as Principal
    from kquota_spark.model.quotas.principals import parse_principal as parse_principal
    from kquota_spark.model.quotas.quota_callback import ClusterMetadata as ClusterMetadata
    from kquota_spark.model.quotas.quota_callback import DefaultQuotaCallback as DefaultQuotaCallback
    from kquota_spark.model.quotas.quota_callback import QuotaCallback as QuotaCallback
    from kquota_spark.model.quotas.quota_types import IpQuotaKey as IpQuotaKey
    from kquota_spark.model.quotas.quota_types import QuotaKey as QuotaKey
    from kquota_spark.model.quotas.quota_types import QuotaType as QuotaType
    from kquota_spark.model.quotas.resolve import Bucket as Bucket
    from kquota_spark.model.quotas.resolve import Resolution as Resolution
    from kquota_spark.model.quotas.resolve import Standing as Standing
    from kquota_spark.model.quotas.resolve import Step as Step
    from kquota_spark.model.quotas.resolve import resolve as resolve
    from kquota_spark.model.quotas.rules import QuotaChange as QuotaChange
    from kquota_spark.model.quotas.rules import RuleBook as RuleBook
    from kquota_spark.model.quotas.rules import rule_periods as rule_periods
    from kquota_spark.model.replay.decision import judge_bucket as judge_bucket
    from kquota_spark.model.replay.replay import BucketReplay as BucketReplay
    from kquota_spark.model.replay.replay import Verdict as Verdict
    from kquota_spark.model.simulation.broker import Broker as Broker
    from kquota_spark.model.simulation.broker import Simulation as Simulation
    from kquota_spark.model.simulation.clients import Client as Client
    from kquota_spark.model.simulation.quota_manager import QuotaManager as QuotaManager
    from kquota_spark.model.simulation.quota_manager import Request as Request
    from kquota_spark.model.simulation.quota_manager import governed_limits as governed_limits
    from kquota_spark.model.simulation.throttled_channel import ThrottledChannel as ThrottledChannel

_PUBLIC = {
    "quotas.entities": ("DEFAULT", "Entity", "IpEntity", "parse_entity"),
    "quotas.quota_types": ("IpQuotaKey", "QuotaKey", "QuotaType"),
    "quotas.names": ("desanitise", "sanitise"),
    "quotas.principals": ("Principal", "parse_principal"),
    "quotas.mbean_names": ("mbean_name", "parse_mbean_name"),
    "quotas.resolve": ("Bucket", "Resolution", "Standing", "Step", "resolve"),
    "quotas.enabled_types": ("enabled_types",),
    "quotas.ip_quotas": ("resolve_ip",),
    "quotas.rules": ("QuotaChange", "RuleBook", "rule_periods"),
    "govern.govern": ("RuleGovernor",),
    "quotas.quota_callback": ("ClusterMetadata", "DefaultQuotaCallback", "QuotaCallback"),
    "govern.callback_governor": ("CallbackGovernor",),
    "measure.sampled_rate": ("FloatRing", "RateConfig", "RingVariant", "SampleRing"),
    "measure.throttle_time": ("bounded_throttle_time_ms", "throttle_time_ms"),
    "measure.token_bucket": ("TokenBucket",),
    "measure.connection_rate": ("ConnectionRates",),
    "measure.simple_rate": ("ReplicationRate",),
    "measure.combining": ("combined",),
    "replay.replay": ("BucketReplay", "Verdict"),
    "replay.decision": ("judge_bucket",),
    "measure.apis": ("Api",),
    "simulation.quota_manager": ("QuotaManager", "Request", "governed_limits"),
    "simulation.throttled_channel": ("ThrottledChannel",),
    "simulation.clients": ("Client",),
    "simulation.broker": ("Broker", "Simulation"),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_MODULES)  # noqa: PLE0605 - of the table above


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
