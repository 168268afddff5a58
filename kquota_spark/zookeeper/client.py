"""A client of ZooKeeper as the settings describe it: address, login and TLS, and what is wrong with them."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.hosts import collect_hosts

from kquota_spark.config.settings import Quotas, ZooKeeperTls
from kquota_spark.errors import UserError

_QUIET = logging.getLogger(__name__)
_QUIET.setLevel(logging.CRITICAL)
_MAX_PASSWORD_BYTES = 10_000
_PROBE_S = 5.0
ADDRESS = "quotas.zookeeper_connect"
"""What gives the address, if nothing else is said."""


def unanswered(connect: str, within_s: float, named: str, reason: str | None = None) -> str:
    """What an error says when no server answers; `named` is what gave the address."""
    why = f" ({reason})" if reason else ""
    return f"ZooKeeper {connect} did not answer within {within_s:g} s{why}: check {named} and that the server runs"


def zookeeper_client(
    quotas: Quotas, logger: logging.Logger = _QUIET, *, named: str = ADDRESS, **options: Any
) -> KazooClient:
    """A client that is not connected yet.

    Args:
        quotas: the settings.
        logger: kazoo's own; at DEBUG it would get every payload, SCRAM credentials included.
        named: what gave the address, for errors.
        options: further ones of kazoo.

    Raises:
        UserError: the address is none, or a file of the login cannot be read. Secrets are in no message.
    """
    tls = quotas.zookeeper_tls
    if tls.enabled:
        _tls_context(tls)  # what kazoo would stumble over in its own thread
        options |= {
            "use_ssl": True,
            "check_hostname": True,
            "ca": tls.ca or None,
            "certfile": tls.certificate or None,
            "keyfile": tls.key or None,
            "keyfile_password": tls.key_password or None,
        }
    login = quotas.zookeeper_login
    if login.user:
        options["auth_data"] = [("digest", f"{login.user}:{_password(quotas)}")]
    connect = quotas.zookeeper_connect
    try:
        return KazooClient(connect, timeout=quotas.session_timeout / 1_000, logger=logger, **options)
    except ValueError as error:
        raise UserError(f"{named}: {connect!r}: {error}, expected host:port,host:port/chroot") from error


def tls_problem(quotas: Quotas) -> str | None:
    """Why no server can be spoken to with TLS, in OpenSSL's words; None if one can, or without TLS."""
    if not quotas.zookeeper_tls.enabled:
        return None
    context = _tls_context(quotas.zookeeper_tls)
    problem = None
    for host, port in collect_hosts(quotas.zookeeper_connect)[0]:
        try:
            with (
                socket.create_connection((host, port), timeout=_PROBE_S) as plain,
                context.wrap_socket(plain, server_hostname=host),
            ):
                return None
        except ssl.SSLCertVerificationError as error:
            problem = f"{host}:{port}: certificate refused: {error.verify_message}"
        except ssl.SSLError as error:
            problem = f"{host}:{port}: no TLS there: {(error.reason or 'handshake failed').lower()}"
        except TimeoutError:
            problem = f"{host}:{port}: no TLS there: no answer to the handshake"
        except OSError as error:
            # Only what was reached tells more than that it was not.
            with contextlib.suppress(OSError):
                socket.create_connection((host, port), timeout=_PROBE_S).close()
                problem = f"{host}:{port}: no TLS there: {error.strerror or type(error).__name__}"
    return problem


def _tls_context(tls: ZooKeeperTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    key, path = "ca", tls.ca
    try:
        if tls.ca:
            context.load_verify_locations(tls.ca)
        if tls.certificate:
            key, path = "certificate", tls.certificate
            # An empty password is none: OpenSSL would ask on the terminal for one that is missing.
            context.load_cert_chain(tls.certificate, tls.key or None, password=lambda: tls.key_password)
    except OSError as error:
        reason = "no PEM, or the key does not fit" if isinstance(error, ssl.SSLError) else error.strerror
        raise UserError(f"quotas.zookeeper_tls.{key}: {path}: cannot be used: {reason}") from error
    return context


def _password(quotas: Quotas) -> str:
    login = quotas.zookeeper_login
    if bool(login.password) == bool(login.password_file):
        raise UserError(
            "quotas.zookeeper_login: expected either password (as ${NAME} from the environment) or password_file"
        )
    if login.password:
        return login.password
    path = Path(login.password_file)
    try:
        if path.stat().st_size > _MAX_PASSWORD_BYTES:
            raise UserError(f"quotas.zookeeper_login.password_file: {path}: too large for a password")
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"quotas.zookeeper_login.password_file: {path}: cannot be read: {reason}") from error
