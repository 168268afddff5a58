"""Makes what judges from the settings: the sample rings, and the `Governor`.

The governor is Kafka's own resolution of quotas, or a quota callback.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.govern.callback_governor import CallbackGovernor
from kquota_spark.model.govern.govern import STATIC_DEFAULT_RULES, Governor, RuleGovernor
from kquota_spark.model.measure.broker_version import major_minor
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.quotas.quota_callback import LeaderBook, QuotaCallback
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import RuleBook

_METHODS = tuple(name for name in vars(QuotaCallback) if not name.startswith("_"))


def rate_config(settings: Settings) -> RateConfig:
    """The sample ring for `broker.version`, `quota_window_num` and `quota_window_size_seconds`."""
    broker = settings.broker
    variant = RingVariant.of_version(broker.version)
    return RateConfig(broker.quota_window_num, broker.quota_window_size_seconds * 1_000, variant)


def mutation_config(settings: Settings) -> RateConfig:
    """The windows of controller.quota.window.*: the size of a bucket of controller mutations."""
    broker = settings.broker
    return RateConfig(broker.controller_quota_window_num, broker.controller_quota_window_size_seconds * 1_000)


def static_defaults(settings: Settings) -> dict[QuotaType, float]:
    """`quota.producer.default` and `quota.consumer.default`, if set.

    Raises:
        UserError: one is set, but brokers of this version do not have it any more.
    """
    given = {
        QuotaType.PRODUCE: settings.broker.quota_producer_default,
        QuotaType.FETCH: settings.broker.quota_consumer_default,
    }
    found = {quota_type: float(limit) for quota_type, limit in given.items() if limit > 0}
    if found and major_minor(settings.broker.version) >= (3, 0):
        names = " and ".join(STATIC_DEFAULT_RULES[quota_type] for quota_type in found)
        raise UserError(
            f"{names}: brokers have these up to 2.8 only, and broker.version is {settings.broker.version}: set that "
            "right, or leave them out"
        )
    return found


def make_governor(settings: Settings, book: RuleBook, leaders: LeaderBook) -> Governor:
    """The governor for these quotas and leaders.

    Raises:
        UserError: `quotas.callback` does not name a valid callback.
    """
    name = settings.quotas.callback
    if not name:
        return RuleGovernor(book, static_defaults(settings))
    return CallbackGovernor(load_callback(name), name, book, leaders, settings.quotas.callback_options)


@contextmanager
def opened_governor(settings: Settings, book: RuleBook, leaders: LeaderBook) -> Iterator[Governor]:
    """As `make_governor`; a callback is closed after the block.

    Raises:
        UserError: `quotas.callback` does not name a valid callback.
    """
    governor = make_governor(settings, book, leaders)
    try:
        yield governor
    finally:
        if isinstance(governor, CallbackGovernor):
            governor.close()


def load_callback(name: str) -> Callable[[], QuotaCallback]:
    """The class that `module:Class` names.

    Raises:
        UserError: it cannot be loaded, or lacks a method of `QuotaCallback`.
    """
    module_name, _, class_name = name.partition(":")
    try:
        made: Callable[[], QuotaCallback] = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise UserError(
            f"quotas.callback: {name!r} cannot be loaded ({problem}), expected module:Class of a class that the "
            "driver and the workers can import"
        ) from error
    missing = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if missing:
        raise UserError(f"quotas.callback: {name!r} has no {', '.join(missing)}, expected a QuotaCallback")
    return made
