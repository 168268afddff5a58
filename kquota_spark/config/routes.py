"""The section `notifications` of the settings: which events go to which receiver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kquota_spark.config.rules import Duration, Positive, PositiveDuration
from kquota_spark.config.substitution import Section

IF_MISSING = "if_missing"
"""Key of the metadata of a required setting: advice for a file that omits it."""

News = Literal[
    "violation", "plan_waiting", "applied", "rolled_back", "failed", "frozen", "audit_behind", "audit_disagreeing",
    "budget_burning",
]  # fmt: skip
"""Kinds of events that `kquota notify` sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Section):
    """The events for one receiver. With users, client ids or owners: only events about what is theirs."""

    users: tuple[str, ...] = ()
    """Regular expressions of RE2 for whole names, as in the policy file."""
    client_ids: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    """Names of owners of the file `owners`: events about their clients and their budgets."""
    events: tuple[News, ...] = ()
    """Kinds of events; empty for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Route):
    """JSON by POST, signed with the secret."""

    kind: Literal["webhook"]
    url: str = field(repr=False)
    secret: str = field(
        repr=False,
        metadata={IF_MISSING: "a webhook needs secret: 16 characters or more; it signs the messages"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack(Route):
    """An incoming webhook of Slack; its URL is a secret."""

    kind: Literal["slack"]
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alertmanager(Route):
    """The API v2 of an Alertmanager, which groups and limits messages itself."""

    kind: Literal["alertmanager"]
    url: str = field(repr=False)
    """The address without `/api/v2/alerts`."""
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail(Route):
    """Mail over SMTP."""

    kind: Literal["mail"]
    host: str
    port: int = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)
    sender: str
    to: tuple[str, ...] = ()
    to_owners: bool = False
    """Instead of `to`: each owner gets its own events, at its contact in the file `owners`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications(Section):
    """The events that `kquota notify` sends, and their receivers."""

    interval: PositiveDuration = Duration(15_000)
    least_delay: Duration = Duration(10_000)
    """Minimum total delay of a violation that is sent."""
    least_used_percent: float = 0.0
    """Minimum peak usage of a violation that is sent, percent of the limit."""
    behind_after: PositiveDuration = Duration(300_000)
    """Age of the newest line, verdict or quotas from which the audit counts as behind."""
    group_wait: Duration = Duration(30_000)
    """How long events are collected for one message."""
    messages_per_hour: Positive = 20
    """Maximum messages per hour and route; further events wait, and share the next message."""
    routes: dict[str, Webhook | Slack | Alertmanager | Mail] = field(default_factory=dict)
