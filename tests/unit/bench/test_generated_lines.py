"""The generator of the benchmark writes what its figures are reconciled with, for every population."""

from __future__ import annotations

from collections import Counter

import pytest

from kquota_spark.formats.quota_files.quota_file import parse_quotas
from kquota_spark.formats.request_log.line import RequestLogParser
from tests.bench.lines import EVEN, Population, lines
from tests.bench.runs.growth import quota_rules

COUNT = 4_000
"""Lines in which each of 100 identities comes, skewed or not."""


def buckets(population: Population, count: int = COUNT) -> Counter[tuple[str, int, str, str]]:
    """Charged requests by quota type, broker, user and client id."""
    parse, found = RequestLogParser().parse, Counter[tuple[str, int, str, str]]()
    for line in lines(range(count), population=population):
        request = parse(line.text)
        if request.quota_type is not None:
            found[request.quota_type, line.broker_id, request.user, request.client_id] += 1
    return found


@pytest.mark.parametrize(
    "population",
    [EVEN, Population(100, 100), Population(10_000, 10_000), Population(is_skewed=True)],
    ids=str,
)
def test_so_many_lines_are_counted_as_expected(population: Population) -> None:
    by_type = Counter[str]()
    for (quota_type, *_), requests in buckets(population).items():
        by_type[quota_type] += requests
    assert by_type == population.expected(COUNT)


@pytest.mark.parametrize("identities", [100, 1_000, 10_000])
def test_all_identities_send(identities: int) -> None:
    population = Population(identities, identities)
    found = {(user, client) for _, _, user, client in buckets(population, 6 * identities)}
    assert found == {population.names(identity) for identity in range(identities)}
    assert len(found) == identities


def test_one_bucket_has_99_of_100_requests() -> None:
    found = buckets(Population(is_skewed=True))
    ((bucket, requests),) = found.most_common(1)
    assert bucket == ("produce", 1, "user-0", "app-0")
    assert requests / COUNT == pytest.approx(0.99, abs=0.001)


def test_lines_that_are_not_whole_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="2010 lines"):
        EVEN.expected(2_010)
    with pytest.raises(ValueError, match="20 lines"):
        Population(is_skewed=True).expected(20)


@pytest.mark.parametrize("count", [10, 1_000, 3_000])
def test_there_are_so_many_rules_and_they_name_identities(count: int) -> None:
    population = Population(1_000, 1_000)
    changes = parse_quotas(quota_rules(count, population)).changes
    named = {str(change.entity) for change in changes}
    assert len(changes) == count
    assert len(named) == count - 1  # both defaults are of one entity
    sending = map(population.names, range(min(count - 2, population.identities)))
    assert {f"users/{user}/clients/{client}" for user, client in sending} <= named
