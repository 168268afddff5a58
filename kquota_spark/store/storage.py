"""Tables and checkpoints: their paths, and the options with which each library reaches them.

Each path or URI is built here, from a root of the settings and a name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.config.roots import (
    AZURE_KEY,
    AZURE_TOKEN,
    GOOGLE_KEY_FILE,
    azure_account,
    local_path,
    scheme_of,
)
from kquota_spark.config.settings import Settings

if TYPE_CHECKING:
    from pyarrow import fs

    from kquota_spark.store.delta.log import TableLog
    from kquota_spark.store.delta.table import StoredTable

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


def is_there(settings: Settings, name: str) -> bool:
    """Whether a table exists; a local one is found without loading deltalake."""
    local = local_place_of(settings.tables, name)
    if local is not None:
        return (local / "_delta_log").is_dir()
    from kquota_spark.store.delta.table import is_table

    return is_table(place_of(settings.tables, name), storage_options(settings))


def delta_table(settings: Settings, name: str, version: int | None = None) -> StoredTable:
    """A table of the settings, with deltalake's errors; `version` None for the newest."""
    from kquota_spark.store.delta.table import StoredTable

    return StoredTable.opened(place_of(settings.tables, name), storage_options(settings), version)


def delta_table_if_there(settings: Settings, name: str) -> StoredTable | None:
    """The newest version of a table, with deltalake's errors; None if it does not exist."""
    from kquota_spark.store.delta.table import StoredTable

    return StoredTable.found(place_of(settings.tables, name), storage_options(settings))


def log_of(settings: Settings, name: str) -> TableLog:
    """The log of a table as files."""
    from kquota_spark.store.delta.log import TableLog

    return TableLog(*file_system(settings, place_of(settings.tables, name)))


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

    from kquota_spark.store.delta.file_systems import google_files

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
