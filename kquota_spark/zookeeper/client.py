"""ZooKeeper clients from the settings: address, login and TLS, the errors in them, and calls with a time limit."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    ConnectionLoss,
    NoAuthError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Quotas, ZooKeeperTls
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.process.listeners import require_listener

_QUIET = logging.getLogger(__name__)
_QUIET.setLevel(logging.CRITICAL)
_MAX_PASSWORD_BYTES = 10_000
_PROBE_S = 5.0
_PAUSE_S = 0.05
_HIDDEN = ":x"
"""End of a digest that ZooKeeper does not show (ZOOKEEPER-1392)."""
ADDRESS = "quotas.zookeeper_connect"
LOGIN = "quotas.zookeeper_login"
"""Default names, for errors, of the settings that hold the address and the login."""


def unanswered(connect: str, within_s: float, named: str, reason: str | None = None) -> str:
    """Text of the error when no server answers.

    Args:
        connect: the address.
        within_s: the time waited for an answer, s.
        named: the setting or option that holds the address.
        reason: the reason in kazoo's words; None for none.
    """
    why = f" ({reason})" if reason else ""
    return f"ZooKeeper {connect} did not answer within {within_s:g} s{why}: check {named} and that the server runs"


def zookeeper_client(
    quotas: Quotas, logger: logging.Logger = _QUIET, *, named: str = ADDRESS, **options: Any
) -> KazooClient:
    """A client that is not connected yet.

    Args:
        quotas: the settings.
        logger: kazoo's own; at DEBUG it would get every payload, SCRAM credentials included.
        named: the setting or option that holds the address, for errors.
        options: further options of kazoo.

    Raises:
        UserError: the address is not valid, or a file of the login or of TLS cannot be read. No message contains a
            secret.
    """
    tls = quotas.zookeeper_tls
    if tls.enabled:
        _tls_context(tls)  # raises here for files on which kazoo would fail in its own thread
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


def require_zookeeper(quotas: Quotas, named: str = ADDRESS) -> None:
    """Check that a client can be created, and that a server listens at the address.

    Raises:
        UserError: see `zookeeper_client`.
        UnreachableError: see `require_listener`.
    """
    zookeeper_client(quotas, named=named)
    # The client takes port 2181 for a server without a port.
    hosts, _ = collect_hosts(quotas.zookeeper_connect)
    servers = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)
    require_listener("ZooKeeper", servers, named)


def tls_problem(quotas: Quotas) -> str | None:
    """Why no server accepts TLS, in OpenSSL's words; None if one does, or if TLS is not enabled."""
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
            # Report it only for a server that can be reached without TLS.
            with suppress(OSError):
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
            # Pass a password even if it is empty: without one, OpenSSL would ask on the terminal.
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


class ZooKeeperCalls:
    """The calls to ZooKeeper of code that writes quotas there; each ends within `within_s`. The client must be started.

    Reads are repeated after a lost connection; a transaction is sent only once. kazoo by itself keeps a call for as
    long as the servers are away. After a pause of the process, the first call fails with a lost connection and only
    the next one is answered. Reads raise UnreachableError when the time is up, and UserError without the right to
    read.
    """

    def __init__(
        self, client: KazooClient, address: str, within_s: float, named: str = ADDRESS, login: str = LOGIN
    ) -> None:
        self._client, self._address, self._within_s, self._named = client, address, within_s, named
        self.login = login
        """The setting or option that holds the login, for errors."""

    @property
    def session(self) -> int | None:
        """The id of the session, in the form in which nodes name their owner; None before there is one."""
        return None if self._client.client_id is None else int(self._client.client_id[0])

    @property
    def chroot(self) -> str:
        """The prefix of each path on the server; empty for none."""
        return str(self._client.chroot)

    def get(self, path: str) -> tuple[bytes | None, ZnodeStat] | None:
        """Data and stat of a node; None if it does not exist."""
        found: tuple[bytes | None, ZnodeStat] | None = self._asked(self._client.get_async, path)
        return found

    def stat(self, path: str) -> ZnodeStat | None:
        """Stat of a node; None if it does not exist."""
        return self._asked(self._client.exists_async, path)

    def children(self, path: str) -> list[str]:
        """Names of the nodes below; none if the node does not exist."""
        return list(self._asked(self._client.get_children_async, path) or [])

    def acl(self, path: str) -> list[ACL]:
        """The access list of a node, to give another node the same list.

        Raises:
            UserError: besides the errors of all reads, the node does not exist, or ZooKeeper hides the digests in its
                list. ZooKeeper hides them from users without the right admin. A node created with hidden digests would
                lock out all their users.
        """
        found = self._asked(self._client.get_acls_async, path)
        if found is None:
            raise UserError(f"ZooKeeper {self._address}: {path} does not exist any more")
        if any(each.id.scheme == "digest" and each.id.id.endswith(_HIDDEN) for each in found[0]):
            raise self._no_right("administer", path)
        return list(found[0])

    def sync(self, path: str) -> None:
        """Bring the server up to date with every edit made before this call."""
        self._asked(self._client.sync_async, path)

    def ensure(self, path: str, acl: Sequence[ACL]) -> None:
        """Create a node and those above it, where they are missing."""
        self._asked(lambda named: self._client.ensure_path_async(named, acl=list(acl)), path, "create")

    def delete(self, path: str) -> None:
        """Delete a node, if it exists."""
        self._asked(self._client.delete_async, path, "delete")

    def transaction(self) -> TransactionRequest:
        """An empty transaction, to fill for `commit`."""
        return self._client.transaction()

    def commit(self, transaction: TransactionRequest) -> Sequence[Any]:
        """Send a transaction once; returns the results of its operations.

        Raises:
            UnreachableError: no answer: it may have been carried out.
        """
        try:
            results: Sequence[Any] = transaction.commit_async().get(timeout=self._within_s)
        except KazooTimeoutError as error:
            # It may not have been sent yet, and must not be sent later: a client that is stopped drops it.
            self._client.stop()
            self._client.start_async()
            raise self._unreachable() from error
        except (ConnectionLoss, SessionExpiredError) as error:
            raise self._unreachable() from error
        return results

    def _asked(self, call: Callable[[str], Any], path: str, right: str = "read") -> Any:
        until_s = time.monotonic() + self._within_s
        while True:
            try:
                return call(path).get(timeout=max(until_s - time.monotonic(), 0.0))
            except NoNodeError:
                return None
            except NoAuthError as error:
                raise self._no_right(right, path) from error
            except KazooTimeoutError as error:
                raise self._unreachable() from error
            except (ConnectionLoss, SessionExpiredError) as error:
                if time.monotonic() >= until_s:
                    raise self._unreachable() from error
                time.sleep(_PAUSE_S)

    def _no_right(self, right: str, path: str) -> UserError:
        return UserError(
            f"ZooKeeper {self._address}: no right to {right} {path}: grant it to the user of {self.login}"
        )

    def _unreachable(self) -> UnreachableError:
        return UnreachableError(unanswered(self._address, self._within_s, self._named))


@contextmanager
def zookeeper_calls(
    quotas: Quotas, *, session_timeout: Duration, named: str = ADDRESS, login: str = LOGIN
) -> Iterator[ZooKeeperCalls]:
    """Calls over a session of their own, which ends with the block.

    Args:
        quotas: address, timeouts and TLS.
        session_timeout: requested from the server, which bounds it.
        named: the setting or option that holds the address, for errors.
        login: the setting or option that holds the login, for errors.

    Raises:
        UserError: the settings do not allow a connection, or no server answers within `connect_timeout`.
    """
    within_s = quotas.connect_timeout / 1_000
    client = zookeeper_client(quotas.changed(session_timeout=session_timeout), named=named)
    try:
        if not client.start_async().wait(within_s):
            raise UnreachableError(unanswered(quotas.zookeeper_connect, within_s, named, tls_problem(quotas)))
        yield ZooKeeperCalls(client, quotas.zookeeper_connect, within_s, named, login)
    finally:
        client.stop()
        client.close()


def refusal_of(results: Sequence[Any]) -> tuple[int, Exception] | None:
    """Index and error of the operation that made a transaction fail; None if the transaction succeeded.

    The other operations of a failed transaction only report that they were rolled back.
    """
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            return index, result
    return None
