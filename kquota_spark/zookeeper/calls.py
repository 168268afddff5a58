"""Calls to ZooKeeper with a time limit: reads go on over a lost connection, a transaction is sent once.

kazoo by itself keeps a call for as long as the servers are away. After a pause of the process the first call finds
the connection gone, and only the next one is answered.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from kquota_spark.config.settings import Duration, Quotas
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.zookeeper.client import ADDRESS, tls_problem, unanswered, zookeeper_client

_PAUSE_S = 0.05


class ZooKeeperCalls:
    """What is asked of ZooKeeper by who writes quotas there: each call within `within_s`, by a client that was started.

    Reads raise UnreachableError when the time is up, and UserError without the right to read.
    """

    def __init__(self, client: KazooClient, address: str, within_s: float, named: str = ADDRESS) -> None:
        self._client, self._address, self._within_s, self._named = client, address, within_s, named

    @property
    def session(self) -> int | None:
        """The id of the session, as nodes name their owner; None before there is one."""
        return None if self._client.client_id is None else int(self._client.client_id[0])

    @property
    def chroot(self) -> str:
        """What stands in front of each path on the server; empty for none."""
        return str(self._client.chroot)

    def get(self, path: str) -> tuple[bytes | None, ZnodeStat] | None:
        """Data and stat; None where there is no such node."""
        found: tuple[bytes | None, ZnodeStat] | None = self._asked(self._client.get_async, path)
        return found

    def stat(self, path: str) -> ZnodeStat | None:
        """The stat alone."""
        return self._asked(self._client.exists_async, path)

    def children(self, path: str) -> list[str]:
        """Names of the nodes below; none where there is no such node."""
        return list(self._asked(self._client.get_children_async, path) or [])

    def acl(self, path: str) -> list[ACL]:
        """Who may do what with a node.

        Raises:
            UserError: besides the others, there is no such node.
        """
        found = self._asked(self._client.get_acls_async, path)
        if found is None:
            raise UserError(f"ZooKeeper {self._address}: {path} does not exist any more")
        return list(found[0])

    def sync(self, path: str) -> None:
        """Have the server know what any other one knew when this was called."""
        self._asked(self._client.sync_async, path)

    def ensure(self, path: str, acl: Sequence[ACL]) -> None:
        """Make a node and those above, where they are missing."""
        self._asked(lambda named: self._client.ensure_path_async(named, acl=list(acl)), path)

    def delete(self, path: str) -> None:
        """Delete a node, if it is there."""
        self._asked(self._client.delete_async, path)

    def transaction(self) -> TransactionRequest:
        """One to fill for `commit`."""
        return self._client.transaction()

    def commit(self, transaction: TransactionRequest) -> Sequence[Any]:
        """Send a transaction once; the results of its operations.

        Raises:
            UnreachableError: no answer: it may have been done.
        """
        try:
            results: Sequence[Any] = transaction.commit_async().get(timeout=self._within_s)
        except KazooTimeoutError as error:
            # It may not have been sent yet, and must not be later on: a client that is stopped forgets it.
            self._client.stop()
            self._client.start_async()
            raise self._unreachable() from error
        except (ConnectionLoss, SessionExpiredError) as error:
            raise self._unreachable() from error
        return results

    def _asked(self, call: Callable[[str], Any], path: str) -> Any:
        until_s = time.monotonic() + self._within_s
        while True:
            try:
                return call(path).get(timeout=max(until_s - time.monotonic(), 0.0))
            except NoNodeError:
                return None
            except NoAuthError as error:
                raise UserError(
                    f"ZooKeeper {self._address}: no right to {path}: check quotas.zookeeper_login"
                ) from error
            except KazooTimeoutError as error:
                raise self._unreachable() from error
            except (ConnectionLoss, SessionExpiredError) as error:
                if time.monotonic() >= until_s:
                    raise self._unreachable() from error
                time.sleep(_PAUSE_S)

    def _unreachable(self) -> UnreachableError:
        return UnreachableError(unanswered(self._address, self._within_s, self._named))


@contextmanager
def zookeeper_calls(
    quotas: Quotas, *, session_timeout: Duration, named: str = ADDRESS
) -> Iterator[ZooKeeperCalls]:
    """Calls over a session of their own, which ends with the block.

    Raises:
        UserError: the settings are none to connect by, or no server answers within `connect_timeout`.
    """
    within_s = quotas.connect_timeout / 1_000
    client = zookeeper_client(dataclasses.replace(quotas, session_timeout=session_timeout), named=named)
    try:
        if not client.start_async().wait(within_s):
            raise UnreachableError(unanswered(quotas.zookeeper_connect, within_s, named, tls_problem(quotas)))
        yield ZooKeeperCalls(client, quotas.zookeeper_connect, within_s, named)
    finally:
        client.stop()
        client.close()


def refusal_of(results: Sequence[Any]) -> tuple[int, Exception] | None:
    """Which operation made a transaction fail, and why; None for one that was done.

    The other operations only say that they were not done.
    """
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            return index, result
    return None
