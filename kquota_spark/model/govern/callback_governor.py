"""Hosts a quota callback as a broker does, for any past time: with the quotas and metadata of that time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from kquota_spark.model.govern.govern import Governed, RequestCoverage, callback_coverage, certain_from_of
from kquota_spark.model.quotas.mbean_names import CLIENT_ID_TAG, USER_TAG
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_callback import CallbackError, LeaderBook, QuotaCallback
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod
from kquota_spark.model.replay.causes import Governing

_KEPT_INSTANCES = 16  # per broker, because brokers alternate; the requests of each are nearly in order
_KEPT_ANSWERS = 50_000
_Identity = tuple[QuotaType, Principal, str]


class CallbackGovernor:
    """A `Governor` that asks a callback.

    Time is divided wherever a quota or a leader changed. Each broker has its own instance for each piece of time, with
    the quotas and leaders of that piece. So an answer depends on the time alone, not on the order of the questions.
    """

    def __init__(
        self,
        new_callback: Callable[[], QuotaCallback],
        name: str,
        book: RuleBook,
        leaders: LeaderBook,
        options: Mapping[str, str],
    ) -> None:
        self._new_callback, self._name, self._options = new_callback, name, options
        self._book, self._leaders = book, leaders
        self._coverage = callback_coverage(book)
        starts = {rule.valid_from_ms for entity in book for rule in book.of(entity)}
        self._starts_ms = sorted({0, *starts, *leaders.starts_ms})
        self._hosts: dict[int, dict[int, _Host]] = {}

    @property
    def coverage(self) -> RequestCoverage:
        """Every client, if there is any request quota."""
        return self._coverage

    def govern(
        self, broker_id: int, quota_type: QuotaType, principal: Principal, client_id: str, time_ms: int
    ) -> Governed:
        """The quota that governs a request, by the callback; see `Governor`.

        Args:
            broker_id: the broker that serves the request; each broker has its own instances of the callback.
            quota_type: the type of quota that is asked for.
            principal: type and raw name of the user.
            client_id: raw client id.
            time_ms: time of the request, epoch ms.

        Raises:
            CallbackError: the callback failed or gave an invalid answer; then there is no verdict.
        """
        piece = bisect_right(self._starts_ms, time_ms) - 1
        of_broker = self._hosts.setdefault(broker_id, {})
        host = of_broker.get(piece)
        if host is None:
            while len(of_broker) >= _KEPT_INSTANCES:
                of_broker.pop(next(iter(of_broker))).calls.call("close")
            host = of_broker[piece] = self._opened(broker_id, piece)
        return host.governed(quota_type, principal, client_id)

    def close(self) -> None:
        """Close all instances of the callback."""
        for of_broker in self._hosts.values():
            while of_broker:
                of_broker.popitem()[1].calls.call("close")

    def _opened(self, broker_id: int, piece: int) -> _Host:
        from_ms = self._starts_ms[piece]
        to_ms = self._starts_ms[piece + 1] if piece + 1 < len(self._starts_ms) else None
        in_force = [rule for entity in self._book if (rule := self._book.at(entity, from_ms)) is not None]
        host = _Host(_Calls(self._new_callback, self._name), from_ms, to_ms, in_force)
        host.calls.call("configure", {**self._options, "broker.id": str(broker_id)})
        host.feed()
        host.calls.call("update_cluster_metadata", self._leaders.at(from_ms))
        return host


class _Host:
    """One instance of the callback, with the quotas that it was given and its answers."""

    def __init__(self, calls: _Calls, from_ms: int, to_ms: int | None, in_force: list[RulePeriod]) -> None:
        self.calls = calls
        self._from_ms, self._to_ms = from_ms, to_ms
        self._in_force = sorted(in_force, key=lambda rule: (rule.entity.level, str(rule.entity)))
        versions = [rule.version for rule in in_force if rule.version is not None]
        self._version = max(versions, default=None)
        self._governed: dict[_Identity, Governed] = {}

    def feed(self) -> None:
        """Give the callback all quotas in force."""
        for rule in self._in_force:
            for quota_type in QuotaType:
                value = rule.values.get(quota_type.key)
                if value is not None:
                    self.calls.call("update_quota", quota_type, rule.entity, value)

    def governed(self, quota_type: QuotaType, principal: Principal, client_id: str) -> Governed:
        identity = (quota_type, principal, client_id)
        # A broker polls both managers that a request goes through.
        for polled in (quota_type, QuotaType.REQUEST):
            if self.calls.call("quota_reset_required", polled):
                self._governed.clear()
        found = self._governed.get(identity)
        if found is None:
            if len(self._governed) >= _KEPT_ANSWERS:
                self._governed.clear()  # random client ids must not fill the memory
            found = self._governed[identity] = self._ask(*identity)
        return found

    def _ask(self, quota_type: QuotaType, principal: Principal, client_id: str) -> Governed:
        tags = self.calls.quota_metric_tags(quota_type, principal, client_id)
        limit = self.calls.quota_limit(quota_type, tags)
        is_request = quota_type is QuotaType.REQUEST
        # For a request quota these are all other types; for any other type, the request quota.
        others = [other for other in QuotaType if (other is QuotaType.REQUEST) is not is_request]
        has_request_quota = any(
            self.calls.quota_limit(other, self.calls.quota_metric_tags(other, principal, client_id))
            is not None
            for other in others
        )
        # JMX leaves out empty tags. The callback itself gets back all tags that it gave.
        kept = tuple(sorted((name, value) for name, value in tags.items() if value))
        bucket = Bucket(tags.get(USER_TAG, ""), tags.get(CLIENT_ID_TAG, ""), kept)
        governing = Governing(limit, self._from_ms, self._to_ms, has_request_quota)
        rule = None if limit is None else self.calls.name
        version = None if limit is None else self._version
        return Governed(bucket, governing, None, rule, version, certain_from_of(self._in_force))


class _Calls:
    """Calls into the callback's code, which is not ours; any failure in it is raised as one `CallbackError`."""

    def __init__(self, new_callback: Callable[[], QuotaCallback], name: str) -> None:
        self.name = name
        self._callback: Any = self._called("__init__", new_callback)

    def quota_metric_tags(self, *arguments: object) -> dict[str, str]:
        tags = self.call("quota_metric_tags", *arguments)
        if not isinstance(tags, Mapping) or not all(
            isinstance(text, str) for item in tags.items() for text in item
        ):
            self._refuse("quota_metric_tags", arguments, f"gave {tags!r:.80}, expected a mapping of texts")
        return dict(tags)

    def quota_limit(self, quota_type: QuotaType, tags: Mapping[str, str]) -> float | None:
        limit = self.call("quota_limit", quota_type, tags)
        if limit is None:
            return None
        if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit):
            self._refuse("quota_limit", (quota_type, tags), f"gave {limit!r:.80}, expected a number or None")
        return float(limit)

    def call(self, method: str, *arguments: object) -> Any:
        return self._called(method, lambda: getattr(self._callback, method)(*arguments), arguments)

    def _called(self, method: str, call: Callable[[], Any], arguments: tuple[object, ...] = ()) -> Any:
        try:
            return call()
        except Exception as error:
            self._refuse(method, arguments, f"raised {type(error).__name__}: {error}", error)

    def _refuse(
        self, method: str, arguments: tuple[object, ...], problem: str, cause: Exception | None = None
    ) -> NoReturn:
        asked = ", ".join(str(argument) for argument in arguments)
        msg = f"quota callback {self.name}: {method}({asked:.120}) {problem}"
        raise CallbackError(msg.replace("\n", " ")) from cause
