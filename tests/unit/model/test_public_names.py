"""The model as a library: what its page names is found at its door, and wrong questions are refused."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys

import pytest

import kquota_spark.model.measure.sampled_rate
import kquota_spark.model.quotas.resolve
from kquota_spark import model
from tests.support.places import ROOT

_PAGE = (ROOT / "kquota_spark/docs/model.md").read_text(encoding="utf-8")
_NAMED = {
    (module, name)
    for module, names in re.findall(r"`(model\.[\w.]+)`: ((?:`\w+`(?:, )?)+)", _PAGE)
    for name in re.findall(r"`(\w+)`", names)
}


def test_the_door_has_the_names_of_the_page_each_from_its_module() -> None:
    assert len(_NAMED) > 40
    assert {name for _, name in _NAMED} == set(model.__all__)
    for module, name in _NAMED:
        assert getattr(model, name) is getattr(sys.modules[f"kquota_spark.{module}"], name)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "kquota_spark/model/__init__.py").read_text(encoding="utf-8"))
    imported = {
        (node.module.removeprefix("kquota_spark."), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kquota_spark.")
        for alias in node.names
        if node.module is not None
    }
    assert imported == _NAMED


def test_the_door_alone_loads_nothing() -> None:
    loads = "import sys; from kquota_spark import model; print([n for n in sys.modules if 'kquota_spark.model.' in n])"
    done = subprocess.run([sys.executable, "-c", loads], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'kquota_spark.model' has no attribute 'quota'$"):
        _ = model.quota


@pytest.mark.parametrize(
    "module", [kquota_spark.model.quotas.resolve, kquota_spark.model.measure.sampled_rate], ids=str
)
def test_the_examples_give_what_they_show(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted > 3
    assert found.failed == 0


def test_a_key_is_its_spelling_and_a_string_that_is_no_key_is_refused() -> None:
    quotas = {model.Entity("alice"): {model.QuotaKey.PRODUCER_BYTE_RATE: 5.0}}
    assert model.resolve("alice", "", "producer_byte_rate", quotas.get).limit == 5.0
    for wrong in ("producer_byte_rat", "produce", "connection_creation_rate", ""):
        with pytest.raises(ValueError, match="is not a valid QuotaKey"):
            model.resolve("alice", "", wrong, quotas.get)


def test_both_rings_measure_in_one_shape() -> None:
    rings = (model.SampleRing(model.RateConfig()), model.FloatRing(model.RateConfig()))
    for ring in rings:
        measured = [
            (ring.record(amount, time_ms), ring.total)
            for amount, time_ms in ((7, 0), (5, 1_500), (1, 12_400))
        ]
        # Ten windows while they are not full. At 12.4 s the first sample, last used at 0, is too old.
        assert measured == [(10_000, 7), (10_500, 12), (10_900, 6)]


def test_a_fetch_is_not_checked_before_its_bytes_are_known() -> None:
    manager = model.QuotaManager(lambda *_: (("u", ""), 1.0), model.RateConfig())  # type: ignore[arg-type]
    fetch = model.Request(api=model.Api.FETCH, user="u", client_id="c", connection=1, size_bytes=1)
    with pytest.raises(ValueError, match=r"^a fetch is charged by on_response, when its bytes are known$"):
        manager.check(fetch, 0)
