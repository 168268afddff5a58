"""One set of options reaches an object store from deltalake, Spark and Arrow alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from kquota_spark.config.loader import load_settings
from kquota_spark.config.roots import local_path
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.store.storage import file_system, hadoop_options, storage_options


def test_options_of_s3_go_to_spark_under_the_names_of_hadoop() -> None:
    settings = Settings(
        storage_options={
            "AWS_ACCESS_KEY_ID": "key",
            "aws_secret_access_key": "secret",
            "AWS_SESSION_TOKEN": "token",
            "AWS_REGION": "eu-central-1",
        }
    )
    assert hadoop_options(settings) == {
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.session.token": "token",
        "fs.s3a.endpoint.region": "eu-central-1",
    }
    assert storage_options(settings) == settings.storage_options


@pytest.mark.parametrize(("endpoint", "is_tls"), [("http://minio:9000", "false"), ("https://s3", "true")])
def test_an_endpoint_of_ones_own_is_asked_by_path(endpoint: str, is_tls: str) -> None:
    assert hadoop_options(Settings(storage_options={"AWS_ENDPOINT_URL": endpoint})) == {
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": is_tls,
    }


def test_options_of_hadoop_go_as_they_are_and_what_only_deltalake_knows_does_not() -> None:
    options = {"fs.azure.account.key.x.dfs.core.windows.net": "k", "AWS_ALLOW_HTTP": "true"}
    assert hadoop_options(Settings(storage_options=options)) == {
        "fs.azure.account.key.x.dfs.core.windows.net": "k"
    }


_AZURE = "abfss://lake@acme.dfs.core.windows.net/kquota"


@pytest.mark.parametrize(
    ("option", "of_spark", "key", "token"),
    [
        (
            {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"},
            {"fs.azure.account.key.acme.dfs.core.windows.net": "a2V5"},
            "a2V5",
            None,
        ),
        (
            {"azure_storage_sas_token": "sig=x"},
            {
                "fs.azure.account.auth.type.acme.dfs.core.windows.net": "SAS",
                "fs.azure.sas.fixed.token.acme.dfs.core.windows.net": "sig=x",
            },
            None,
            "sig=x",
        ),
    ],
)
def test_a_key_or_a_token_of_azure_reaches_spark_deltalake_and_arrow(
    option: dict[str, str], of_spark: dict[str, str], key: str | None, token: str | None
) -> None:
    settings = Settings(tables=_AZURE, storage_options=option)
    assert hadoop_options(settings) == of_spark
    assert storage_options(settings) == option
    files, path = file_system(settings, f"{_AZURE}/usage")
    assert files == fs.AzureFileSystem("acme", account_key=key, sas_token=token)
    assert files != fs.AzureFileSystem("acme")
    assert path == "lake/kquota/usage"


def test_google_is_opened_with_the_login_of_the_environment() -> None:
    files, path = file_system(Settings(), "gs://lake/kquota/usage")
    assert isinstance(files, fs.GcsFileSystem)
    assert path == "lake/kquota/usage"


@pytest.mark.parametrize("name", ["GOOGLE_SERVICE_ACCOUNT", "google_service_account"])
def test_a_key_file_of_google_reaches_spark_and_deltalake_and_arrow_is_given_deltalakes_files(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / "key.json"
    login = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    file.write_text(json.dumps({"disable_oauth": True, **login}), "utf-8")
    settings = Settings(tables="gs://lake/kquota", storage_options={name: str(file)})
    assert hadoop_options(settings) == {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": str(file),
    }
    assert storage_options(settings) == settings.storage_options
    files, path = file_system(settings, "gs://lake/kquota/usage")
    assert isinstance(files, fs.PyFileSystem)
    assert isinstance(files.handler, DeltaStorageHandler)
    assert path == "kquota/usage"


def test_a_place_that_no_library_of_the_workers_opens_is_an_error() -> None:
    with pytest.raises(OSError, match=r"^hdfs://namenode/t: no file system of hdfs here$"):
        file_system(Settings(), "hdfs://namenode/t")


@pytest.mark.parametrize(
    ("root", "option", "expected"),
    [
        (_AZURE, "AZURE_CLIENT_SECRET", "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN"),
        (_AZURE, "account_key", "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN"),
        ("gs://lake/t", "google_service_account_key", "GOOGLE_SERVICE_ACCOUNT"),
    ],
)
@pytest.mark.parametrize("value", ["x", "${KQUOTA_NO_SECRET}"])
def test_a_login_that_does_not_reach_the_workers_is_refused_when_it_is_loaded(
    tmp_path: Path, root: str, option: str, expected: str, value: str
) -> None:
    path = tmp_path / "kquota.yaml"
    options = f'{{{option}: "{value}", timeout: 9s, fs.gs.key: y}}'
    path.write_text(f"tables: {root}\nstorage_options: {options}\n", "utf-8")
    with pytest.raises(UserError) as refused:
        load_settings(path)
    assert str(refused.value) == (
        f"{path}: storage_options.{option}: does not reach all nodes with {root.partition(':')[0]}://, "
        f"expected {expected}, or the login of the environment on each node"
    )
    path.write_text(f"tables: /data\nstorage_options: {options}\n", "utf-8")
    assert load_settings(path).tables == "/data"


def test_without_options_the_environment_speaks() -> None:
    assert storage_options(Settings()) is None
    assert hadoop_options(Settings()) == {}


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("/data/t", Path("/data/t")),
        ("file:///data/a%20b", Path("/data/a b")),
        ("s3a://lake/t", None),
        ("abfss://c@a.dfs.core.windows.net/t", None),
    ],
)
def test_what_is_local(root: str, path: Path | None) -> None:
    assert local_path(root) == path


def test_checkpoints_on_s3_are_looked_at_where_the_options_say() -> None:
    settings = Settings(
        storage_options={"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "http://localhost:1"}
    )
    files, path = file_system(settings, "s3a://lake/checkpoints/ingest")
    assert isinstance(files, fs.S3FileSystem)
    assert (files.region, path) == ("eu-central-1", "lake/checkpoints/ingest")
