"""A quota file is read into changes, and every mistake in it is reported at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.errors import UserError
from kquota_spark.formats.quota_files.quota_file import IpLimit, read_quota_file, read_quotas
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import END_MS, QuotaChange, RuleBook, rule_periods

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE


def written(directory: Path, text: str) -> Path:
    path = directory / "quotas.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(directory: Path, text: str) -> list[str]:
    path = written(directory, text)
    with pytest.raises(UserError) as raised:
        read_quota_file(path)
    lines = str(raised.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


def test_parts_values_and_times(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
- {user: alice, client_id: null, type: producer_byte_rate, value: 100, from_ms: 10, to_ms: 20}
- {user: <default>, client_id: <default>, type: request_percentage, value: 1.5, from_ms: 0, to_ms: null}
- {client_id: "a b", type: consumer_byte_rate, value: "1e6"}
""",
    )
    assert read_quota_file(path) == [
        QuotaChange(Entity(None, "a b"), FETCH, 1e6, None, 0, 0),
        QuotaChange(Entity(DEFAULT, DEFAULT), QuotaKey.REQUEST_PERCENTAGE, 1.5, None, 0, 0),
        QuotaChange(Entity("alice"), PRODUCE, 100.0, None, 10, 10),
        QuotaChange(Entity("alice"), PRODUCE, None, 100.0, 20, 20),
    ]


def test_a_period_that_follows_at_once_is_one_change(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
- {user: bob, type: producer_byte_rate, value: 120000, from_ms: 50}
- {user: bob, type: producer_byte_rate, value: 250000, from_ms: 10, to_ms: 50}
""",
    )
    bob = Entity("bob")
    assert read_quota_file(path) == [
        QuotaChange(bob, PRODUCE, 250000.0, None, 10, 10),
        QuotaChange(bob, PRODUCE, 120000.0, 250000.0, 50, 50),
    ]
    book = RuleBook(rule_periods(read_quota_file(path)))
    found = [book.at(bob, time_ms) for time_ms in (9, 10, 49, 50, END_MS)]
    assert [rule and rule.values.get(PRODUCE) for rule in found] == [
        None,
        250000.0,
        250000.0,
        120000.0,
        120000.0,
    ]


def test_an_empty_file_has_no_quotas(tmp_path: Path) -> None:
    assert read_quota_file(written(tmp_path, "# nothing yet\n")) == []


def test_every_problem_is_reported(tmp_path: Path) -> None:
    text = """
- {user: alice, type: producer_byte_rates, value: 1}
- {user: 7, type: producer_byte_rate, value: 1.5, from_ms: soon}
- {type: producer_byte_rate, value: -1}
- {user: a, type: producer_byte_rate, value: 1, from_ms: 20, to_ms: 20}
- {user: a, usr: b}
- {user: a, user: b, type: producer_byte_rate, value: [1]}
- alice
- {type: producer_byte_rate, value: 1}
"""
    assert problems(tmp_path, text) == [
        f"[0].type: 'producer_byte_rates', expected one of {', '.join(key.value for key in QuotaKey)}",
        "[1].user: 7, expected a name in quotes, <default>, or null",
        "[1].value: 1.5, expected a whole number of bytes per second, 0 or more",
        "[1].from_ms: 'soon', expected epoch milliseconds or null",
        "[2].value: -1, expected a whole number of bytes per second, 0 or more",
        "[3].to_ms: 20, expected a time after from_ms",
        "[4].usr: unknown key, expected one of user, client_id, ip, type, value, from_ms, to_ms",
        "[4].type: missing, expected a value",
        "[4].value: missing, expected a value",
        "[5].user: is given twice, expected once",
        "[5].value: a list or mapping, expected one value",
        "[6]: not a mapping, expected keys user, client_id, ip, type, value, from_ms, to_ms",
        "[7].user: none of user, client_id and ip is given, expected at least one",
    ]


def test_values_that_no_broker_holds(tmp_path: Path) -> None:
    huge = "1" + "0" * 400  # larger than any double
    text = f"""
- {{user: a, type: producer_byte_rate, value: 9223372036854777856}}
- {{user: b, type: consumer_byte_rate, value: {huge}}}
- {{user: c, type: request_percentage, value: {huge}}}
- {{user: d, type: request_percentage, value: "1e400"}}
"""
    assert problems(tmp_path, text) == [
        # The double behind 2^63, 2,048 further on.
        "[0].value: 9223372036854777856, expected a whole number of bytes per second, 9223372036854775808 or less",
        f"[1].value: {huge[:60]}, expected a whole number of bytes per second, 0 or more",
        f"[2].value: {huge[:60]}, expected a number, 0 or more",
        "[3].value: '1e400', expected a number, 0 or more",
    ]


def test_the_largest_long_is_a_limit(tmp_path: Path) -> None:
    path = written(tmp_path, "- {user: a, type: producer_byte_rate, value: 9223372036854775807}")
    assert read_quota_file(path) == [QuotaChange(Entity("a"), PRODUCE, 2.0**63, None, 0, 0)]


def test_ips_have_limits_beside_the_changes_of_users(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
- {ip: <default>, type: connection_creation_rate, value: 20, from_ms: 5}
- {user: alice, type: producer_byte_rate, value: 100}
- {ip: "::1", client_id: null, type: connection_creation_rate, value: "0", to_ms: 9}
""",
    )
    read = read_quotas(path)
    assert read.ip_limits == [IpLimit(IpEntity("::1"), 0, 0, 9), IpLimit(IpEntity(DEFAULT), 20, 5, None)]
    assert read.changes == [QuotaChange(Entity("alice"), PRODUCE, 100.0, None, 0, 0)]
    assert read_quota_file(path) == read.changes


def test_problems_of_ips(tmp_path: Path) -> None:
    text = """
- {ip: 10.0.0.1, user: alice, type: connection_creation_rate, value: 1}
- {ip: a/b, type: connection_creation_rate, value: 1}
- {ip: 7, type: connection_creation_rate, value: 1.5}
- {ip: 10.0.0.1, type: producer_byte_rate, value: 1}
- {ip: 10.0.0.1, type: connection_creation_rate, value: 2147483648}
- {user: alice, type: connection_creation_rate, value: 1}
"""
    assert problems(tmp_path, text) == [
        "[0].ip: '10.0.0.1', expected no ip beside a user or client_id",
        "[1].ip: 'a/b' is no address or host name, expected an address, <default>, or null",
        "[2].ip: 7, expected a name in quotes, <default>, or null",
        "[2].value: 1.5, expected a whole number of connections per second, 0 or more",
        "[3].type: 'producer_byte_rate', expected connection_creation_rate",
        "[4].value: 2147483648, expected a whole number of connections per second, 2147483647 or less",
        f"[5].type: 'connection_creation_rate', expected one of {', '.join(key.value for key in QuotaKey)}",
    ]


def test_limits_of_one_address_overlap_however_it_is_spelled(tmp_path: Path) -> None:
    text = """
- {ip: "::1", type: connection_creation_rate, value: 1, to_ms: 9}
- {ip: "0:0:0:0:0:0:0:1", type: connection_creation_rate, value: 1, from_ms: 5}
"""
    assert problems(tmp_path, text) == [
        "[1].from_ms: overlaps [0] of ips/::1 connection_creation_rate, expected one value at a time"
    ]


def test_overlaps_of_one_key_are_refused_and_other_keys_are_not(tmp_path: Path) -> None:
    text = """
- {user: a, type: producer_byte_rate, value: 1, from_ms: 0}
- {user: a, type: consumer_byte_rate, value: 1, from_ms: 0}
- {user: a, type: producer_byte_rate, value: 2, from_ms: 5, to_ms: 9}
"""
    assert problems(tmp_path, text) == [
        "[2].from_ms: overlaps [0] of users/a producer_byte_rate, expected one value at a time"
    ]


def test_hostile_yaml_is_one_line(tmp_path: Path) -> None:
    assert problems(tmp_path, "{a: b}") == [
        "not a list, expected a list of quotas such as - {user: alice, ...}"
    ]
    assert problems(tmp_path, "- [unclosed")[0].startswith("line ")
    assert problems(
        tmp_path, "- {user: !!python/object/apply:os.system [id], type: producer_byte_rate, value: 1}"
    )
    tagged = "- {user: !!python/name:os.system '', type: producer_byte_rate, value: 1}"
    assert problems(tmp_path, tagged) == ["[0].user: '', expected a name in quotes, <default>, or null"]


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.yaml: cannot be read: No such file or directory"):
        read_quota_file(tmp_path / "gone.yaml")
