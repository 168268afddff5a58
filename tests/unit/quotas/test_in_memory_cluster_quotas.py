"""The cluster in memory keeps the contract of the real ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kquota_spark.quotas.cluster_quotas import ClusterQuotas
from tests.support.quotas.cluster_quotas_contract import CLAIMS, ClusterUnderTest
from tests.support.quotas.in_memory_cluster_quotas import InMemoryClusterQuotas


class MemoryUnderTest:
    """Where nothing but quotas is kept, credentials cannot be lost."""

    def __init__(self) -> None:
        self.quotas: ClusterQuotas = InMemoryClusterQuotas()

    def add_credential(self, user: str) -> None:
        pass

    def credentials_of(self, user: str) -> object:
        return None


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_contract(claim: Callable[[ClusterUnderTest, str], None]) -> None:
    claim(MemoryUnderTest(), claim.__name__)
