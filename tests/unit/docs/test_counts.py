"""`python -m tests.counts`: its rules on a small package, and that the page shows every count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.carriers import CARRIERS
from tests.counts import Package, Walk, as_table, carriers_of_quotas, counts
from tests.support.places import ROOT

FILES = {
    "__init__": "from shop import till",
    "door": '''
"""The door. It names end_price."""
from __future__ import annotations
from typing import TYPE_CHECKING
import json
from shop.till import Sale
if TYPE_CHECKING:
    from shop.types_only import Never
else:
    from shop import either
def lazily():
    import shop.office.safe
''',
    "till": "from shop.office import safe, shelf\nclass Sale:\n    price: float\n",
    "either": "",
    "types_only": "from shop import door",
    "office.safe": "",
    "office.shelf": "",
    "lonely": "from shop.till import Sale",
    "model": """
class ByKey:
    values: dict[QuotaKey, float]
class Book(NamedTuple):
    rules: tuple["RuleBook | None", ...] = ()
class Keys:
    my_quota_keys: str
class Bucket:
    user: str
    client_id: str
    custom_tags: Tags
class Row:
    bucket_user: str
    bucket_client_id: str
    bucket_tags: str | None
class Client:
    user: str
    client_id: str
class Topic:
    user: str
    tags: str
""",
    "schema.tables": """
A = Table("sales", "grain", (PLACE, double("end_price", "about"), double("net_sum", "both"), string("late", "")))
B = Table("other", "grain", (double("net_sum", "both"), double("end_price_2", "")))
NAMED = "end_price"
""",
    "asks": '''
"""Not counted: end_price."""
SQL = f"select sum(end_price), net_sum, late, end_price_2 from {table}"
QUESTION = Question()
''',
    "reads": "x = row.end_price\nQUESTION = 1\n",
    "writes": "save(end_price=1)\nQUESTIONS = 2\n",
    "declares": "class One:\n    end_price: float\n    '''The end_price.'''\n",
    "local": "end_price = 1\ndef f(end_price): pass\n",
}
"""Modules of the package `shop`."""


@pytest.fixture
def shop(tmp_path: Path) -> Package:
    folder = tmp_path / "shop"
    for name, text in FILES.items():
        path = folder / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Package(folder)


def test_a_walk_follows_the_imports_that_run(shop: Package) -> None:
    """Those in functions run; those for types do not. `__init__` files and other packages are no modules of a walk."""
    assert shop.reached(["door"]) == {"door", "till", "either", "office.safe", "office.shelf"}
    assert shop.reached(["lonely", "either"]) == {"lonely", "till", "either", "office.safe", "office.shelf"}


def test_on_the_way_is_what_leads_to_an_end(shop: Package) -> None:
    assert shop.on_the_way(Walk("", ("door",), ("office.shelf",))) == {"door", "till", "office.shelf"}
    assert shop.on_the_way(Walk("", ("door",), ("either", "office.safe"))) == {
        "door", "till", "either", "office.safe",
    }  # fmt: skip
    assert shop.on_the_way(Walk("", ("door",), ("lonely",))) == set()


def test_a_walk_of_a_module_that_is_gone_is_an_error(shop: Package) -> None:
    with pytest.raises(KeyError, match="gone"):
        shop.reached(["gone"])


def test_what_is_counted(shop: Package) -> None:
    found = counts(shop, (Walk("a sale", ("door",), ("office.shelf",)),), "sales")
    assert found == {
        "walks": [
            {"walk": "a sale", "reached": 5, "on_the_way": 3, "files": ["door", "office.shelf", "till"]},
        ],
        "carriers_of_quotas": ["model.Book", "model.ByKey"],
        "carriers_of_a_bucket": ["model.Bucket", "model.Row"],
        # net_sum is of two tables, and late is one word.
        "columns_of_decisions": ["end_price"],
        # Docstrings, the schema itself and local names do not count.
        "places_of_columns": {name: ["end_price"] for name in ("asks", "declares", "reads", "writes")},
        "lines_of_reading_commands": {"asks": 4, "reads": 2},
        "median_lines": 3,
    }  # fmt: skip
    assert as_table(found) == (
        "| count | today |\n"
        "| --- | --- |\n"
        "| files of the walk: a sale | 3 on the way, 5 reached |\n"
        "| classes that hold quotas | 2 |\n"
        "| classes that hold the name of a bucket | 2 |\n"
        "| places that name a column of `decisions` outside the schema | 4 in 4 files; columns: 1 |\n"
        "| lines of a reading command | median 3 of 2, 2 to 4 |"
    )


def test_the_page_shows_each_count_of_this_checkout() -> None:
    """The numbers on the page are of a date; the rows are not."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = as_table(counts(Package(ROOT / "kquota_spark"))).splitlines()[2:]
    assert [row for row in rows if f"\n{row.rpartition(' | ')[0]} | " not in page] == []


def test_each_class_that_holds_quotas_has_a_reason() -> None:
    """A new one needs a line that names what it adds to an image, a change or a history."""
    assert sorted(CARRIERS) == carriers_of_quotas(Package(ROOT / "kquota_spark"))
