"""The agents from which a broker's MBeans are read by HTTP: Jolokia, or a page of Prometheus' jmx_exporter."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from kquota_spark.config.settings import CollectJmx
from kquota_spark.errors import UserError
from kquota_spark.formats.jmx.exporter_page import answers_of
from kquota_spark.model.quotas.mbean_names import DOMAIN
from kquota_spark.process.no_redirects import OPENER, basic_login

PATTERNS = (
    f"{DOMAIN}:type=Produce,*",
    f"{DOMAIN}:type=Fetch,*",
    f"{DOMAIN}:type=Request,*",
    f"{DOMAIN}:type=ControllerMutation,*",
    f"{DOMAIN}:type=socket-server-metrics",
    f"{DOMAIN}:type=socket-server-metrics,listener=*",
    f"{DOMAIN}:type=socket-server-metrics,ip=*",
)
"""MBeans to read. `type=Produce,*` also returns the MBean without tags."""
_REQUESTS = json.dumps([{"type": "read", "mbean": pattern} for pattern in PATTERNS]).encode()
_LIMIT_BYTES = 256 << 20
_AT_ONCE_BYTES = 1 << 16
_EXAMPLES = {"jolokia": "http://kafka1:8778/jolokia", "prometheus": "http://kafka1:11001/metrics"}


class AgentError(Exception):
    """An agent did not return the MBeans; the text is for the operator."""


class Agent(Protocol):
    """An agent that a collector polls."""

    @property
    def broker_id(self) -> int:
        """Id of the agent's broker."""

    @property
    def url(self) -> str:
        """Address of the agent."""

    def read(self, timeout_s: float) -> list[dict[str, Any]]:
        """All quota MBeans, in the form of Jolokia's answers.

        Raises:
            AgentError: no answer in time, a refusal, or an answer that is not an agent's.
        """


@dataclass(frozen=True, slots=True)
class JolokiaAgent:
    """The Jolokia agent of one broker, e.g. at `http://kafka1:8778/jolokia`; an empty user means no login."""

    broker_id: int
    url: str
    user: str = ""
    password: str = field(default="", repr=False)

    def read(self, timeout_s: float) -> list[dict[str, Any]]:
        """One answer per pattern; see `Agent`."""
        headers = {"Content-Type": "application/json", **basic_login(self.user, self.password)}
        request = urllib.request.Request(f"{self.url.rstrip('/')}/", _REQUESTS, headers)  # noqa: S310 - see agents_of
        try:
            return msgspec.json.decode(_fetched(request, timeout_s, "/jolokia"), type=list[dict[str, Any]])
        except (msgspec.DecodeError, RecursionError) as error:
            raise AgentError("its answer is not Jolokia's, is the path right (/jolokia)?") from error


@dataclass(frozen=True, slots=True)
class ExporterAgent:
    """The jmx_exporter of one broker, e.g. at `http://b-1:11001/metrics`; an address without a path gets /metrics."""

    broker_id: int
    url: str
    user: str = ""
    password: str = field(default="", repr=False)

    def read(self, timeout_s: float) -> list[dict[str, Any]]:
        """One answer with all sensors of the page; see `Agent`."""
        url = self.url if urlsplit(self.url).path.strip("/") else f"{self.url.rstrip('/')}/metrics"
        headers = {"Accept": "text/plain;version=0.0.4", **basic_login(self.user, self.password)}
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - see agents_of
        answers = answers_of(_fetched(request, timeout_s, "/metrics").decode("utf-8", "replace"))
        if not answers:
            raise AgentError(
                "its page has no sensors of quotas such as kafka_server_Produce_byte_rate: see that the path is right "
                f"(/metrics), and that the exporter's rules keep {DOMAIN}:type=Produce,*"
            )
        return answers


def _fetched(request: urllib.request.Request, timeout_s: float, path: str) -> bytes:
    """The body of an answer. The timeout also ends a slow answer that keeps arriving: other brokers are waiting."""
    deadline_s = time.monotonic() + timeout_s
    body = bytearray()
    try:
        with OPENER.open(request, timeout=timeout_s) as response:
            while part := response.read1(_AT_ONCE_BYTES):
                body += part
                if len(body) > _LIMIT_BYTES:
                    raise AgentError(f"its answer is longer than {_LIMIT_BYTES >> 20} MiB")
                if time.monotonic() > deadline_s:
                    raise AgentError(f"its answer takes longer than {timeout_s:g} s")
    except urllib.error.HTTPError as error:
        raise AgentError(f"HTTP status {error.code}{_advice(error.code, path)}") from error
    except http.client.HTTPException as error:
        raise AgentError(f"no answer of HTTP: {type(error).__name__}") from error
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise AgentError(str(reason)) from error
    return bytes(body)


def _advice(status: int, path: str) -> str:
    if 300 <= status < 400:
        return ", a redirect is not followed: give the agent's own address"
    if status in (401, 403):
        return ", check collect.jmx.user and password, and the agent's access policy"
    return f", is the path right ({path})?" if status == 404 else ""


def agents_of(jmx: CollectJmx) -> Sequence[Agent]:
    """The agents that the settings name.

    Raises:
        UserError: there is none, an id is not a number, an address is not an HTTP address, or it contains a login.
    """
    example = _EXAMPLES[jmx.source]
    if not jmx.brokers:
        raise UserError(
            "collect.jmx.brokers: empty, expected the address of each broker's agent by its id, e.g. "
            f"1: {example}"
        )
    for broker, url in jmx.brokers.items():
        if not (broker.isascii() and broker.isdigit()):
            raise UserError(f"collect.jmx.brokers: {broker!r}, expected the id of a broker, a number")
        if "@" in url:  # every message about the agent shows its address
            raise UserError(
                f"collect.jmx.brokers.{broker}: an address with a login, expected e.g. "
                f"{example}; the login goes into collect.jmx.user and password"
            )
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise UserError(f"collect.jmx.brokers.{broker}: {url!r}, expected e.g. {example}")
    kind = ExporterAgent if jmx.source == "prometheus" else JolokiaAgent
    return [kind(int(broker), url, jmx.user, jmx.password) for broker, url in jmx.brokers.items()]
