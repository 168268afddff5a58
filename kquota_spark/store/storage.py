"""Tables and checkpoints: their paths, the options with which each library reaches them, and their errors.

Each path or URI is built here, from a root of the settings and a name. Only `store` handles deltalake's own errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kquota_spark.config.roots import (
    AZURE_KEY,
    AZURE_TOKEN,
    GOOGLE_KEY_FILE,
    azure_account,
    local_path,
    scheme_of,
)
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError, one_line

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow import fs

ResultT = TypeVar("ResultT")
_S3A = {
    "aws_access_key_id": "fs.s3a.access.key",
    "aws_secret_access_key": "fs.s3a.secret.key",
    "aws_session_token": "fs.s3a.session.token",
    "aws_endpoint_url": "fs.s3a.endpoint",
    "aws_region": "fs.s3a.endpoint.region",
}
"""Names of deltalake's options (object_store's `AmazonS3ConfigKey`) and of Hadoop's S3A."""


def trimmed(root: str) -> str:
    """A root without slashes at its end."""
    return root.rstrip("/") or "/"


def place_of(root: str, name: str) -> str:
    """The path or URI of a table, of a query's checkpoint, or of a file beside them, by its name."""
    return f"{root.rstrip('/')}/{name}"


def local_place_of(root: str, name: str) -> Path | None:
    """The result of `place_of` as a path of this machine; None for an object store."""
    local = local_path(root)
    return None if local is None else local / name


def hadoop_place(root: str, name: str) -> str:
    """The result of `place_of` for Spark, with `file:` before a local path.

    Spark reads a plain path in `fs.defaultFS`, which may be another file system on a cluster.
    """
    local = local_place_of(root, name)
    return place_of(root, name) if local is None else f"file:{local.absolute()}"


def storage_options(settings: Settings) -> dict[str, str] | None:
    """The options for deltalake; None leaves them to the environment."""
    return dict(settings.storage_options) or None


def delta_table(settings: Settings, name: str, version: int | None = None) -> DeltaTable:
    """A table opened by deltalake, which raises its own errors; `version` None for the newest."""
    from deltalake import DeltaTable

    where = place_of(settings.tables, name)
    return DeltaTable(where, version=version, storage_options=storage_options(settings))


def delta_table_if_there(settings: Settings, name: str) -> DeltaTable | None:
    """The newest version of a table; None if it does not exist."""
    from deltalake.exceptions import TableNotFoundError

    with suppress(TableNotFoundError):
        return delta_table(settings, name)
    return None


def log_actions(settings: Settings, name: str, version: int) -> list[dict[str, Any]]:
    """The actions of one commit of a table, from its log."""
    files, path = file_system(settings, place_of(settings.tables, f"{name}/_delta_log/{version:020}.json"))
    with files.open_input_stream(path) as stream:
        return [json.loads(line) for line in stream.read().splitlines()]


def _s3_file_system(settings: Settings) -> fs.FileSystem:
    """S3 as a file system of Arrow; options that are not set come from the environment."""
    from pyarrow import fs

    options = {name.lower(): value for name, value in settings.storage_options.items()}
    return fs.S3FileSystem(  # type: ignore[call-arg]
        access_key=options.get("aws_access_key_id"),
        secret_key=options.get("aws_secret_access_key"),
        session_token=options.get("aws_session_token"),
        region=options.get("aws_region"),
        endpoint_override=options.get("aws_endpoint_url"),
        allow_delayed_open=True,  # a small object is one request instead of three
    )


def _azure_file_system(settings: Settings, account: str) -> fs.FileSystem:
    """Azure as a file system of Arrow; without a key or a token the login comes from the environment."""
    from pyarrow import fs

    options = {name.lower(): value for name, value in settings.storage_options.items()}
    return fs.AzureFileSystem(account, account_key=options.get(AZURE_KEY), sas_token=options.get(AZURE_TOKEN))


def _google_file_system(settings: Settings, path: str) -> tuple[fs.FileSystem, str]:
    """Google as a file system of Arrow, and the path in it; without a key file the login comes from the environment.

    Arrow's own class takes no key file. With one it is deltalake's, where paths begin below the bucket.
    """
    from pyarrow import fs

    from kquota_spark.store.google import google_files

    if all(name.lower() != GOOGLE_KEY_FILE for name in settings.storage_options):
        return fs.GcsFileSystem(), path
    bucket, _, below = path.partition("/")
    return google_files(bucket, settings.storage_options), below


def file_system(settings: Settings, place: str) -> tuple[fs.FileSystem, str]:
    """The Arrow file system of a path or URI, and the path in it.

    Raises:
        OSError: Arrow has no such file system.
    """
    from pyarrow import fs

    if (local := local_path(place)) is not None:
        return fs.LocalFileSystem(), str(local.absolute())
    scheme, path = scheme_of(place), place.partition("://")[2]
    if scheme in ("s3", "s3a"):
        return _s3_file_system(settings), path
    if scheme == "abfss":
        account, _, path = azure_account(place)
        return _azure_file_system(settings, account), path
    if scheme == "gs":
        return _google_file_system(settings, path)
    raise OSError(f"{place}: no file system of {scheme} here")


def _azure_options(settings: Settings, name: str, value: str) -> dict[str, str]:
    """A key or a token under Hadoop's names, which contain the host of the account."""
    roots = (settings.tables, settings.checkpoints)
    hosts = {azure_account(root)[1] for root in roots if scheme_of(root) == "abfss"}
    if name == AZURE_KEY:
        return {f"fs.azure.account.key.{host}": value for host in hosts}
    types = {f"fs.azure.account.auth.type.{host}": "SAS" for host in hosts}
    return types | {f"fs.azure.sas.fixed.token.{host}": value for host in hosts}


def hadoop_options(settings: Settings) -> dict[str, str]:
    """The storage options for Spark: translated to Hadoop's names, with Hadoop's own (`fs.*`) as they are."""
    found: dict[str, str] = {}
    for name, value in settings.storage_options.items():
        if name.startswith("fs."):
            found[name] = value
        elif name.lower() in _S3A:
            found[_S3A[name.lower()]] = value
        elif name.lower() in (AZURE_KEY, AZURE_TOKEN):
            found |= _azure_options(settings, name.lower(), value)
        elif name.lower() == GOOGLE_KEY_FILE:
            found["fs.gs.auth.type"] = "SERVICE_ACCOUNT_JSON_KEYFILE"
            found["fs.gs.auth.service.account.json.keyfile"] = value
    if "fs.s3a.endpoint" in found:
        # A custom endpoint usually has no host name per bucket.
        found.setdefault("fs.s3a.path.style.access", "true")
        is_plain = found["fs.s3a.endpoint"].startswith("http://")
        found.setdefault("fs.s3a.connection.ssl.enabled", str(not is_plain).lower())
    return found


def arrow_files(table: DeltaTable) -> fs.FileSystem | None:
    """The file system for reading a local table through Arrow; None for an object store, which needs deltalake's own.

    deltalake's is written in Python. If a thread of Arrow is still in it when the process ends, the process aborts:
    in one of ten runs of a command.
    """
    from pyarrow import fs

    local = local_path(table.table_uri)
    return None if local is None else fs.SubTreeFileSystem(str(local.absolute()), fs.LocalFileSystem())


class MissingTableError(UserError):
    """There is no such table."""


class OvertakenError(UserError):
    """Another writer changed the same rows first."""


@contextmanager
def delta_errors(what: str, *also: type[Exception]) -> Iterator[None]:
    """Turn errors of Delta and of the storage into ours: `{what}: {reason}`.

    Args:
        what: what failed, e.g. `table usage cannot be read`.
        also: further errors that the block may raise for a damaged table.

    Raises:
        MissingTableError: there is no such table.
        OvertakenError: another writer committed first.
        UserError: any other of these errors.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

    caught: tuple[type[Exception], ...] = (DeltaError, OSError, *also)
    try:
        yield
    except caught as error:
        kinds = {TableNotFoundError: MissingTableError, CommitFailedError: OvertakenError}
        ours = next((ours for kind, ours in kinds.items() if isinstance(error, kind)), UserError)
        raise ours(f"{what}: {one_line(error)}") from error


def committed(commit: Callable[[], ResultT], attempts: int) -> ResultT:
    """Run a commit, and retry it if another writer was faster; each attempt has to read again what it replaces.

    Raises:
        CommitFailedError: another writer was faster each time.
    """
    from deltalake.exceptions import CommitFailedError

    for _ in range(attempts - 1):
        with suppress(CommitFailedError):
            return commit()
    return commit()
