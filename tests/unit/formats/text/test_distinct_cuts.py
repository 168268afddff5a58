"""Names in few columns: what is left of them, and that no two become equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota_spark.formats.text.escape import distinct_cuts, width

ALICE = "CN=alice,OU=payments,O=Example,C=DE"


@pytest.mark.parametrize(
    ("texts", "columns", "forms"),
    [
        (["alice", "bob"], 6, ["alice", "bob"]),
        # The common name is enough, ...
        ([ALICE, "CN=bob,OU=payments,O=Example,C=DE"], 16, ["CN=alice…", "CN=bob…"]),
        # ... until two have the same: then the next part, ...
        ([ALICE, ALICE.replace("payments", "billing")], 22, ["CN=alice,OU=payments…", "CN=alice,OU=billing…"]),
        # ... and it says nothing of one that stands there whole.
        (["CN=a,OU=payments", "CN=a,OU=p"], 12, ["CN=a,OU=…nts", "CN=a,OU=p"]),
        # A sanitised name in a rule is the same name.
        (["users/CN%3Dalice%2COU%3Dpayments%2CO%3DExample"], 24, ["users/CN%3Dalice…"]),
        # Both names of a pair: 24 columns less 3 of ` / ` are 10 and 11.
        ([f"{ALICE} / etl-loader-eu-west-0"], 24, ["CN=alice… / etl-loa…t-0"]),
        # The beginning and the end; in the middle only where the difference is there.
        (["payments-sink-0", "payments-sink-1"], 12, ["payments…k-0", "payments…k-1"]),
        (["payments-of-orders-reader-of-0", "payments-of-orders-writer-of-0"], 12, ["pay…reader-…", "pay…writer-…"]),
        # Strokes of a tree make no difference between names.
        (["├─ payments-of-orders-reader-of-0", "└─ payments-of-orders-writer-of-0"], 15,
         ["├─ pay…reader-…", "└─ pay…writer-…"]),
        # Nothing else is left than a number, but for the one that is longer than all others.
        (["a" * 20, "a" * 21, "a" * 22], 8, ["aaaaaa…2", "aaaaaa…3", "aaa…a"]),
    ],
)  # fmt: skip
def test_what_is_left(texts: list[str], columns: int, forms: list[str]) -> None:
    found = distinct_cuts(texts, columns)
    assert [found[text] for text in texts] == forms


_NAMES = st.one_of(
    st.text(alphabet="ab,=/ │├…日", max_size=40),
    st.builds(
        "CN={},OU={},O={}".format, *[st.text(alphabet="abc", min_size=1, max_size=12) for _ in range(3)]
    ),
    st.builds("{} / {}".format, *[st.text(alphabet="ab-", max_size=30) for _ in range(2)]),
)


@given(st.lists(_NAMES, unique=True, max_size=30), st.integers(12, 40))
def test_no_two_become_equal_and_all_fit(texts: list[str], columns: int) -> None:
    found = distinct_cuts(texts, columns)
    assert len({*found.values()}) == len(texts)
    assert all(width(form) <= columns for form in found.values())


def test_names_that_differ_beyond_what_is_looked_at_get_numbers() -> None:
    long = "CN=" * 20_000
    found = distinct_cuts([long, long + "a", "CN=a,OU=" * 9_000], 12)
    # The limit is 1,000 columns: the first two are the same up to there.
    assert [found[long], found[long + "a"]] == ["CN=CN=CN=C…2", "CN=CN=CN=C…3"]
