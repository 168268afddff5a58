"""`kquota doctor --before` on an object store: it uses the store as the job does, and leaves nothing there."""

from __future__ import annotations

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.doctor.preflight import before_checks
from kquota_spark.doctor.store_trial import checkpoints_check, tables_check
from kquota_spark.process.check import Check, Status
from tests.support.programs.s3_server import keys, put, s3_server


def on_s3(endpoint: str, bucket: str = "lake") -> Settings:
    options = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    options |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "canary-of-a-secret"}
    root = f"s3a://{bucket}"
    return Settings(tables=f"{root}/tables", checkpoints=f"{root}/checkpoints", storage_options=options)


def without_time(check: Check) -> tuple[str, str, str]:
    return check.status.value, check.what, check.evidence.rpartition(" (")[0]


def test_a_store_that_works_is_written_committed_merged_and_read_and_nothing_is_left() -> None:
    with s3_server() as endpoint:
        settings = on_s3(endpoint)
        put(endpoint, "lake/tables/usage/part", b"1")
        put(endpoint, "lake/checkpoints/log/metadata", b"{}")
        before = keys(endpoint, "lake")
        assert [without_time(check) for check in (tables_check(settings), checkpoints_check(settings))] == [
            (
                "ok",
                "tables",
                (
                    "s3a://lake/tables: by this process parts are written, committed, merged and read; "
                    "of commits of one version one wins"
                ),
            ),
            ("ok", "checkpoints", "s3a://lake/checkpoints: notes are written, replaced and read"),
        ]
        left = set(keys(endpoint, "lake")) - set(before)
    assert left <= {"tables/", "checkpoints/"}  # the folders of the roots themselves


def test_a_store_that_puts_a_commit_over_another_is_a_finding() -> None:
    with s3_server("unconditional") as endpoint:
        found = tables_check(on_s3(endpoint))
        assert [key for key in keys(endpoint, "lake") if not key.endswith("/")] == []
    assert (found.status, found.what, found.advice) == (Status.FAIL, "tables", "give tables: another place")
    assert found.evidence == (
        "s3a://lake/tables: the store puts a commit over one that is there, so two writers would lose rows: use a "
        "store with conditional writes (If-None-Match)"
    )


@pytest.mark.parametrize("is_there", [False, True], ids=["no server", "no bucket"])
def test_a_store_that_cannot_be_written_is_a_finding_before_the_first_run(is_there: bool) -> None:
    with s3_server() as endpoint:
        # Port 9 (discard) refuses.
        settings = on_s3(endpoint if is_there else "http://127.0.0.1:9", "none")
        checks = before_checks(settings, 0)
        found = [next(check for check in checks if check.what == what) for what in ("tables", "checkpoints")]
    for check, what in zip(found, ("tables", "checkpoints"), strict=True):
        assert check.status is Status.FAIL
        assert check.evidence.startswith(f"s3a://none/{what}")
        assert "check storage_options" in check.advice
        assert "canary" not in check.evidence
