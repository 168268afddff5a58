"""Who asks: an operator, a tenant, or nobody that we know.

A reverse proxy names users in a header, which counts only from the proxy's address. A token, or the session that it
opened, makes an operator. Where neither is set, whoever reaches the loopback address is one.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable
from typing import NamedTuple

from kquota_spark.config.settings import Serve
from kquota_spark.errors import UserError

_LEAST_TOKEN = 16
_BEARER = "bearer "


class Viewer(NamedTuple):
    """Somebody who may look: a tenant, who sees one user's own data, or without one an operator."""

    tenant: str | None = None

    def may_see(self, user: str | None) -> bool:
        """Whether this is an operator, or it is the tenant's own."""
        return self.tenant is None or self.tenant == user


class Access:
    """The settings of `serve`, checked."""

    def __init__(self, settings: Serve, address: str) -> None:
        """Check them.

        Raises:
            UserError: the token is short, or the address is open to others and nothing says who may look.
        """
        self._token, self._header = settings.token, settings.user_header
        self._proxies, self._operators = settings.proxies, settings.operators
        if self._token and len(self._token) < _LEAST_TOKEN:
            raise UserError(
                f"serve.token: shorter than {_LEAST_TOKEN} characters: make one with openssl rand -hex 32"
            )
        if not (self._token or self._header or is_loopback(address)):
            raise UserError(
                f"--address {address}: other machines could read everything: set serve.token or serve.user_header"
            )

    @property
    def has_token(self) -> bool:
        """Whether one can log in."""
        return bool(self._token)

    @property
    def is_open(self) -> bool:
        """Whether nobody has to say who they are."""
        return not (self._token or self._header)

    def viewer(
        self, peer: str | None, header: Callable[[str], str | None], *, is_logged_in: bool
    ) -> Viewer | None:
        """Who sent a request with these headers from this address; None for nobody that we know."""
        named = header(self._header) if self._header and peer in self._proxies else None
        if named is not None:
            user = _utf8(named)
            return None if not user else Viewer(None if user in self._operators else user)
        scheme_and_token = header("Authorization") or ""
        is_bearer = scheme_and_token[: len(_BEARER)].lower() == _BEARER
        if is_logged_in or self.is_open or (is_bearer and self.is_token(scheme_and_token[len(_BEARER) :])):
            return Viewer()
        return None

    def is_token(self, given: str) -> bool:
        """Whether this is the token; takes the same time for each that is not."""
        return self.has_token and secrets.compare_digest(given.encode(), self._token.encode())


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _utf8(value: str) -> str:
    """A header as it was sent; empty where it is no UTF-8: bytes arrive as characters of Latin-1."""
    try:
        return value.encode("latin-1").decode("utf-8").strip()
    except UnicodeError:
        return ""
