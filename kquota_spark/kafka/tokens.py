"""Tokens for logins: by OAuth's grant of client credentials from a token endpoint, or signed for AWS MSK.

One source serves librdkafka and kafka-python, so that both report a missing token alike. Java's client, inside Spark,
requests its own. No message contains a token. Messages show its claims, because brokers do not report what they
refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import ssl
import threading
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode

from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.kafka.client_properties import MSK_IAM, OAUTHBEARER, TokenLogin, mechanism, token_login
from kquota_spark.process.clock import now_ms
from kquota_spark.process.extras import install_text
from kquota_spark.process.no_redirects import NoRedirect, basic_login

_TIMEOUT_S = 5.0
_MOST_BYTES = 1_000_000
_MOST_SHOWN = 200
_USED = 0.8
"""Share of a token's life after which a new one is fetched; librdkafka asks at the same time."""
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_CLAIMS = {"aud": "audience", "iss": "issuer", "scope": "scope", "sub": "subject"}


class Token(NamedTuple):
    """A token and its expiry, epoch ms."""

    text: str
    expires_at_ms: int


class TokenSource:
    """Provides a token that has not expired; kafka-python calls `token` and `extensions`, librdkafka the object."""

    def __init__(self, fetch: Callable[[], Token], extensions: Mapping[str, str]) -> None:
        self._fetch, self._extensions = fetch, dict(extensions)
        self._lock = threading.Lock()
        self._held = Token("", 0)
        self._renew_at_ms = 0

    def __call__(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        """The token, its expiry in epoch seconds, an empty name of the principal, and the extensions."""
        held = self._current()
        return held.text, held.expires_at_ms / 1_000, "", self._extensions

    def token(self) -> str:
        """The text of the token.

        Raises:
            UserError: no token can be fetched.
        """
        return self._current().text

    def extensions(self) -> dict[str, str]:
        """SASL extensions, sent to the broker with the token."""
        return self._extensions

    @property
    def claims(self) -> str:
        """The claims of the token, for the message that a broker refused it."""
        found = _payload(self.token())
        named = [
            f"{name} {found[claim]!r}"[:_MOST_SHOWN] for claim, name in _CLAIMS.items() if claim in found
        ]
        return ", ".join(named) or "it shows no claims"

    def _current(self) -> Token:
        with self._lock:
            now = now_ms()
            if now >= self._renew_at_ms:
                self._held = self._fetch()
                self._renew_at_ms = now + round(_USED * (self._held.expires_at_ms - now))
            return self._held


def token_source(bootstrap_servers: str, options: Mapping[str, str]) -> TokenSource | None:
    """The source of tokens for a login; None if it needs none.

    Args:
        bootstrap_servers: `host:port,host:port`; those of AWS MSK contain the region.
        options: client properties in Java's or librdkafka's spelling.

    Raises:
        UserError: a part of the login is missing.
    """
    chosen = mechanism(options)
    if chosen == OAUTHBEARER:
        login = token_login(options)
        return TokenSource(lambda: _granted(login), login.extensions)
    if chosen == MSK_IAM:
        region = _region(bootstrap_servers)
        return TokenSource(lambda: _signed(region), {})
    return None


def _granted(login: TokenLogin) -> Token:
    """Request a token from the endpoint.

    Raises:
        UnreachableError: the endpoint does not answer.
        UserError: it refuses the client, or its answer holds no valid token.
    """
    where = f"token endpoint {login.url}"
    answer, now = _answer(login, where), now_ms()
    try:
        fields = json.loads(answer)
        text = str(fields["access_token"])
        ends_s = _payload(text).get("exp") or now / 1_000 + float(fields["expires_in"])
        expires_at_ms = round(float(ends_s) * 1_000)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise UserError(
            f"{where} did not answer with a token: check sasl.oauthbearer.token.endpoint.url"
        ) from error
    if expires_at_ms <= now:
        raise UserError(
            f"{where} gives tokens that have expired {(now - expires_at_ms) / 1_000:.0f} s ago by this machine's "
            "clock: set the clocks, or the life of tokens there"
        )
    return Token(text, expires_at_ms)


def _answer(login: TokenLogin, where: str) -> bytes:
    if not login.url.startswith(("http://", "https://")):
        raise UserError(f"sasl.oauthbearer.token.endpoint.url: {login.url!r}, expected https://host/path")
    wanted = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked
        login.url,
        urlencode(wanted).encode(),
        {**basic_login(login.client_id, login.client_secret), "Accept": "application/json"},
    )
    try:
        context = ssl.create_default_context(cafile=login.ca or None)
        opener = urllib.request.build_opener(NoRedirect, urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            return bytes(response.read(_MOST_BYTES))
    except HTTPError as error:
        raise UserError(
            f"{where} refuses client {login.client_id!r} (HTTP {error.code}{_oauth_error(error)}): check "
            "sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and sasl.oauthbearer.scope"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UnreachableError(
            f"{where} does not answer ({str(reason)[:_MOST_SHOWN]}): check sasl.oauthbearer.token.endpoint.url and "
            "https.ca.location, and that it runs"
        ) from error


def _oauth_error(error: HTTPError) -> str:
    """The code of RFC 6749 in the answer, e.g. `invalid_client`."""
    try:
        return f" {json.loads(error.read(_MOST_BYTES))['error']!r}"[:_MOST_SHOWN]
    except (OSError, ValueError, TypeError, KeyError):
        return ""


def _payload(token: str) -> dict[str, Any]:
    """The claims of a JWT, which only the brokers verify; empty for a token of another kind."""
    try:
        part = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return {}
    return found if isinstance(found, dict) else {}


def _region(bootstrap_servers: str) -> str:
    named = _REGION.search(bootstrap_servers)
    region = named[1] if named else next(filter(None, map(os.environ.get, _REGION_VARIABLES)), None)
    if region is None:
        raise UserError(
            f"sasl.mechanism {MSK_IAM} needs a region, and {bootstrap_servers} names none: set {_REGION_VARIABLES[0]}"
        )
    return region


def _signed(region: str) -> Token:
    """Sign a token with the credentials of this process.

    Raises:
        UserError: the library or the credentials are missing.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise UserError(
            f"sasl.mechanism {MSK_IAM} needs aws-msk-iam-sasl-signer-python: {install_text('msk')}"
        ) from error
    try:
        return Token(*MSKAuthTokenProvider.generate_auth_token(region))
    except (
        BotoCoreError,
        ValueError,
        AttributeError,
    ) as error:  # without any credentials it asks None for its key
        raise UserError(
            f"sasl.mechanism {MSK_IAM}: no credentials of AWS ({type(error).__name__}): set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run with a role"
        ) from error
