"""The sender of a request: an operator, a tenant, or an unknown viewer.

A reverse proxy names users in a header. The header counts only from the proxy's address and with the proxy's secret. A
token, or the session that it opened, makes an operator. If neither is set, every client on the loopback address is one.
A request must name a host of this server. A foreign web page can resolve its own name to this address, but cannot use
a name of this server.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Callable
from typing import NamedTuple

from kquota_spark.config.rules import SHORT_SECRET, is_short
from kquota_spark.config.settings import Serve
from kquota_spark.errors import UserError

_BEARER = "bearer "
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared, not listened on
_SENT_BY_PROXY = "X-Kquota-Proxy-Secret"
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]*))(?::[0-9]{1,5})?")
"""The header Host in lower case: an IPv6 address in brackets or another name, with an optional port."""


class Viewer(NamedTuple):
    """A known viewer: a tenant sees the data of one user; an operator has no tenant and sees all data."""

    tenant: str | None = None

    def may_see(self, user: str | None) -> bool:
        """Whether the viewer is an operator, or the data are the tenant's own."""
        return self.tenant is None or self.tenant == user


class Access:
    """Access rules from the section `serve`, checked."""

    def __init__(self, settings: Serve, address: str) -> None:
        """Check the settings.

        Args:
            settings: the section `serve`.
            address: the address to listen on.

        Raises:
            UserError: a secret is too short, a host is invalid, or other machines reach the address without a login.
        """
        self._token, self._header = settings.token, settings.user_header
        self._proxies, self._operators = settings.proxies, settings.operators
        self._proxy_secret = settings.proxy_secret
        self._hosts = _hosts(settings.hosts, address)
        self._is_any_address = address in _EVERYWHERE
        if self._token and is_short(self._token):
            raise UserError(f"serve.token: {SHORT_SECRET}")
        if self._header and is_short(self._proxy_secret):
            raise UserError(
                f"serve.proxy_secret: {SHORT_SECRET}, and let the proxy send it as {_SENT_BY_PROXY}; "
                "without it serve.user_header cannot be trusted"
            )
        if not (self._token or self._header or is_loopback(address)):
            raise UserError(
                f"--address {address}: other machines could read everything: set serve.token or serve.user_header"
            )

    @property
    def has_token(self) -> bool:
        """Whether a login by token is possible."""
        return bool(self._token)

    @property
    def is_open(self) -> bool:
        """Whether no login is required."""
        return not (self._token or self._header)

    def is_host(self, host: str) -> bool:
        """Whether a header Host names this server: loopback, the listening address, or a host of the settings."""
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = _canonical(found[1] or found[2])
        # An IP address is safe: unlike a name, nobody can make it resolve to another address.
        return name in self._hosts or is_loopback(name) or (self._is_any_address and _is_ip(name))

    def viewer(
        self, peer: str | None, header: Callable[[str], str | None], *, is_logged_in: bool
    ) -> Viewer | None:
        """The sender of a request; None for an unknown viewer.

        Args:
            peer: address that the request came from.
            header: value of a request header by name; None if it is missing.
            is_logged_in: whether the session was opened with the token.
        """
        is_proxy = peer in self._proxies and self._is_proxy_secret(header(_SENT_BY_PROXY) or "")
        named = header(self._header) if self._header and is_proxy else None
        if named is not None:
            user = _utf8(named)
            return None if not user else Viewer(None if user in self._operators else user)
        scheme_and_token = header("Authorization") or ""
        is_bearer = scheme_and_token[: len(_BEARER)].lower() == _BEARER
        if is_logged_in or self.is_open or (is_bearer and self.is_token(scheme_and_token[len(_BEARER) :])):
            return Viewer()
        return None

    def is_token(self, given: str) -> bool:
        """Whether this is the token; the check takes the same time for every wrong value."""
        return self.has_token and secrets.compare_digest(given.encode(), self._token.encode())

    def _is_proxy_secret(self, given: str) -> bool:
        return bool(self._proxy_secret) and secrets.compare_digest(
            given.encode(), self._proxy_secret.encode()
        )


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _hosts(named: tuple[str, ...], address: str) -> frozenset[str]:
    for number, host in enumerate(named):
        if not (_is_ip(host) or _NAME.fullmatch(host.lower())):
            raise UserError(
                f"serve.hosts[{number}]: {host!r} is no host name, expected one without scheme, port and path, "
                "e.g. quotas.example.com"
            )
    return frozenset(map(_canonical, (*named, address)))


def _canonical(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _utf8(value: str) -> str:
    """A header as it was sent; empty if it is not UTF-8. The server decodes headers as Latin-1."""
    try:
        return value.encode("latin-1").decode("utf-8").strip()
    except UnicodeError:
        return ""
