"""A local master repeats a task that fails, as a cluster does."""

from __future__ import annotations

import pytest

from kquota_spark.audit.spark import with_task_failures


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[16]", "local[16,4]"),
        # Who names a number of failures has it.
        ("local[*,1]", "local[*,1]"),
        ("local[2, 3]", "local[2, 3]"),
        ("local-cluster[2,1,2048]", "local-cluster[2,1,2048]"),
        ("spark://a:7077", "spark://a:7077"),
    ],
)
def test_a_local_master_gets_the_failures_of_a_cluster(given: str, used: str) -> None:
    assert with_task_failures(given) == used
