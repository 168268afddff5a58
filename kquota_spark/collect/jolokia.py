"""One bulk read of a broker's quota MBeans through its Jolokia agent."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kquota_spark.errors import UserError
from kquota_spark.model.quotas.mbean_names import DOMAIN

PATTERNS = (
    f"{DOMAIN}:type=Produce,*",
    f"{DOMAIN}:type=Fetch,*",
    f"{DOMAIN}:type=Request,*",
    f"{DOMAIN}:type=ControllerMutation,*",
    f"{DOMAIN}:type=socket-server-metrics",
    f"{DOMAIN}:type=socket-server-metrics,listener=*",
    f"{DOMAIN}:type=socket-server-metrics,ip=*",
)
"""What is read. `type=Produce,*` gives the MBean without tags as well."""
_REQUESTS = json.dumps([{"type": "read", "mbean": pattern} for pattern in PATTERNS]).encode()
_LIMIT_BYTES = 256 << 20


class JolokiaError(Exception):
    """An agent did not give what was asked for; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent of one broker.

    Attributes:
        broker_id: of the broker.
        url: where the agent listens, e.g. `http://kafka1:8778/jolokia`.
        user: for its login; empty for none.
        password: likewise.
    """

    broker_id: int
    url: str
    user: str = ""
    password: str = field(default="", repr=False)

    def read(self, timeout_s: float) -> list[dict[str, Any]]:
        """All quota MBeans, one answer a pattern.

        Raises:
            JolokiaError: no answer in time, a refusal, or no answer of Jolokia.
        """
        headers = {"Content-Type": "application/json"}
        if self.user:
            login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        request = urllib.request.Request(f"{self.url.rstrip('/')}/", _REQUESTS, headers)  # noqa: S310 - see agents_of
        try:
            with _OPENER.open(request, timeout=timeout_s) as response:
                text = response.read(_LIMIT_BYTES)
        except urllib.error.HTTPError as error:
            raise JolokiaError(f"HTTP status {error.code}{_advice(error.code)}") from error
        except OSError as error:
            reason = getattr(error, "reason", None) or error
            raise JolokiaError(str(reason)) from error
        try:
            return msgspec.json.decode(text, type=list[dict[str, Any]])
        except msgspec.DecodeError as error:
            raise JolokiaError("its answer is not Jolokia's, is the path right (/jolokia)?") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """urllib would send the login wherever a redirect leads."""

    def redirect_request(self, *_: Any) -> None:
        """None: a redirect stays the error that it is."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def _advice(status: int) -> str:
    if 300 <= status < 400:
        return ", a redirect is not followed: give the agent's own address"
    if status in (401, 403):
        return ", check collect.jmx.user and password, and the agent's access policy"
    return ", is the path right (/jolokia)?" if status == 404 else ""


def agents_of(brokers: dict[str, str], user: str, password: str) -> list[Agent]:
    """The agents that the settings name.

    Raises:
        UserError: there is none, an id is no number, or an address is none of HTTP, or holds a login.
    """
    if not brokers:
        raise UserError(
            "collect.jmx.brokers: empty, expected the address of each broker's Jolokia agent by its id, e.g. "
            "1: http://kafka1:8778/jolokia"
        )
    for broker, url in brokers.items():
        if not (broker.isascii() and broker.isdigit()):
            raise UserError(f"collect.jmx.brokers: {broker!r}, expected the id of a broker, a number")
        if "@" in url:  # every message about the agent shows its address
            raise UserError(
                f"collect.jmx.brokers.{broker}: an address with a login, expected e.g. "
                "http://kafka1:8778/jolokia; the login goes into collect.jmx.user and password"
            )
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise UserError(
                f"collect.jmx.brokers.{broker}: {url!r}, expected e.g. http://kafka1:8778/jolokia"
            )
    return [Agent(int(broker), url, user, password) for broker, url in brokers.items()]
