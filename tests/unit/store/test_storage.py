"""One set of options reaches an object store from deltalake, Spark and Arrow alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from kquota_spark.config.settings import Settings
from kquota_spark.store.storage import file_system, hadoop_options, local_path, storage_options


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
