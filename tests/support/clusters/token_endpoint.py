"""A token endpoint (OAuth's grant of client credentials), and the key that brokers check its tokens with."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

ISSUER, AUDIENCE = "https://login.example", "kafka"
SECRET = "token-canary-7301"
"""Of every client; no token endpoint is asked with another one but to be refused."""
_KEY = generate_private_key(65_537, 2_048)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def write_jwks(path: Path) -> None:
    """The public key, as brokers read it."""
    numbers = _KEY.public_key().public_numbers()
    n, e = (_encoded(each.to_bytes((each.bit_length() + 7) // 8)) for each in (numbers.n, numbers.e))
    key = {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", "n": n, "e": e}
    path.write_text(json.dumps({"keys": [key]}), encoding="ascii")


def signed(claims: dict[str, Any]) -> str:
    """A JWT."""
    parts = ({"alg": "RS256", "kid": "one", "typ": "JWT"}, claims)
    text = ".".join(_encoded(json.dumps(each).encode()) for each in parts)
    return f"{text}.{_encoded(_KEY.sign(text.encode(), PKCS1v15(), SHA256()))}"


@dataclass
class TokenEndpoint:
    """What a running endpoint answers, to be changed by a test, and what it was asked."""

    url: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    """Instead of what tokens claim otherwise."""
    lasts_s: int = 3_600
    answer: bytes | None = None
    """Instead of a token."""
    scopes: list[str] = field(default_factory=list)
    """Of each token that was given."""

    def login(self, client: str, secret: str = SECRET) -> dict[str, str]:
        """Properties of a client that logs in with tokens, in librdkafka's spelling."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.id": client,
            "sasl.oauthbearer.client.secret": secret,
        }

    def granted(self, login: str, form: dict[str, list[str]]) -> tuple[int, bytes]:
        """The answer to a client."""
        client, _, secret = login.partition(":")
        if secret != SECRET or form.get("grant_type") != ["client_credentials"]:
            return 401, b'{"error": "invalid_client"}'
        if self.answer is not None:
            return 200, self.answer
        self.scopes += form.get("scope", [""])
        now_s = int(time.time())
        claims = {"sub": client, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + self.lasts_s}
        token = signed(claims | self.claims)
        return 200, json.dumps({"access_token": token, "expires_in": self.lasts_s}).encode()


@contextmanager
def token_endpoint() -> Iterator[TokenEndpoint]:
    """An endpoint for as long as the block runs."""
    endpoint = TokenEndpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            status, body = endpoint.granted(login, form)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing to say."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        endpoint.url = f"http://127.0.0.1:{server.server_port}/token"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield endpoint
        server.shutdown()
