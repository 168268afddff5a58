"""Every format gives back what was written into it, whatever the names; what it cannot say it refuses."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kquota_spark.formats.exchange.registry import FORMATS, guess
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.support.quotas.quota_sets import NAMES, names_of, quota_sets
from tests.support.quotas.terraform_shows import terraform_shows

_PAIRS = (1, 2, 4, 5)
"""Their levels."""
_SETTINGS = settings(deadline=None, max_examples=60, print_blob=True)


def _round_trips(name: str, quotas: QuotaSet) -> None:
    text = FORMATS[name].write(quotas)
    assert FORMATS[name].read(text) == quotas
    if quotas:
        assert [each.name for each in guess(text)] == [name]


@_SETTINGS
@given(quotas=quota_sets())
def test_a_format_with_a_word_of_its_own_for_the_default_says_everything(quotas: QuotaSet) -> None:
    _round_trips("kfk", quotas)


@pytest.mark.parametrize("name", ["rpk", "declared"])
@_SETTINGS
@given(quotas=quota_sets())
@example(quotas={Entity("<default>"): {QuotaKey.PRODUCER_BYTE_RATE: 1.0}})
@example(quotas={Entity(DEFAULT, "<default>"): {QuotaKey.PRODUCER_BYTE_RATE: 1.0}})
def test_formats_whose_word_for_the_default_is_a_name_refuse_who_is_really_called_that(
    name: str, quotas: QuotaSet
) -> None:
    if "<default>" not in names_of(quotas):
        return _round_trips(name, quotas)
    with pytest.raises(ValueError, match="default"):
        FORMATS[name].write(quotas)
    return None


@_SETTINGS
@given(quota_sets())
@example({Entity("e\u0301"): {QuotaKey.PRODUCER_BYTE_RATE: 1.0}})
@example({Entity("$${a} %{b} $$$${"): {QuotaKey.PRODUCER_BYTE_RATE: 1.0}})
def test_terraform_says_all_names_in_the_one_form_that_it_knows(quotas: QuotaSet) -> None:
    has_pairs = any(entity.level in _PAIRS for entity in quotas)
    if not has_pairs and all(unicodedata.normalize("NFC", name) == name for name in names_of(quotas)):
        text = FORMATS["terraform"].write(quotas)
        shown = terraform_shows(text)
        assert FORMATS["terraform"].read(shown) == quotas
        assert not quotas or {each.name for each in (*guess(text), *guess(shown))} == {"terraform"}
        return
    with pytest.raises(ValueError, match=r"no pair|NFC"):
        FORMATS["terraform"].write(quotas)


@_SETTINGS
@given(quota_sets(NAMES.filter(lambda name: not {"\n", "\0"} & set(name) and "', " not in name)))
def test_kafkas_sentences_say_names_with_quotes_and_commas(quotas: QuotaSet) -> None:
    _round_trips("kafka-configs", quotas)


_PIECES = ("a", "'", ", ", "\n", "', client-id '", "', the default client-id", "' are x=1", " are ")
_HARD = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=4).map("".join)


@_SETTINGS
@given(quota_sets(_HARD))
def test_kafkas_sentences_never_read_otherwise_than_they_were_written(quotas: QuotaSet) -> None:
    try:
        text = FORMATS["kafka-configs"].write(quotas)
    except ValueError:
        assert any("\n" in name or "', " in name for name in names_of(quotas))
    else:
        assert FORMATS["kafka-configs"].read(text) == quotas


_K8S = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?(\.[a-z0-9]{1,3})?", fullmatch=True)
_USERS = st.sampled_from(["", "CN="]).flatmap(lambda cn: _K8S.map(lambda name: Entity(cn + name)))
_WHOLE = st.integers(0, 2**31 - 1).map(float)
_OF_RESOURCES: st.SearchStrategy[QuotaSet] = st.dictionaries(
    _USERS, st.dictionaries(st.sampled_from(QuotaKey), _WHOLE, min_size=1), max_size=4
)


@_SETTINGS
@given(_OF_RESOURCES)
def test_strimzi_says_users_whose_names_can_be_those_of_resources(quotas: QuotaSet) -> None:
    names = [name.removeprefix("CN=") for name in names_of(quotas)]
    if len(set(names)) == len(names):
        return _round_trips("strimzi", quotas)
    with pytest.raises(ValueError, match="would be one KafkaUser"):
        FORMATS["strimzi"].write(quotas)
    return None


@_SETTINGS
@given(quota_sets().filter(bool))
def test_strimzi_refuses_whatever_is_no_named_user(quotas: QuotaSet) -> None:
    others = [entity for entity in quotas if entity.level != 3]
    if others:
        with pytest.raises(ValueError, match="one named user only"):
            FORMATS["strimzi"].write(quotas)


_READ = [name for name in FORMATS if name != "kafka-configs-commands"]
_HOSTILE = (
    "\0",
    "\n",
    '"',
    "'",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "- ",
    "&a ",
    "*a",
    "${",
    "/*",
    "\\",
    "NaN",
    "-1",
    "<default>",
    "%",
    " are ",
)


@pytest.mark.parametrize("name", _READ)
@_SETTINGS
@given(quotas=quota_sets(most=3), data=st.data())
def test_a_spoiled_file_is_read_or_refused_in_lines_and_never_ends_in_a_traceback(
    name: str, quotas: QuotaSet, data: st.DataObject
) -> None:
    try:
        text = FORMATS[name].write(quotas)
    except ValueError:
        text = ""
    for _ in range(data.draw(st.integers(1, 3))):
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        text = (
            text[:start]
            + data.draw(st.sampled_from(_HOSTILE))
            + text[data.draw(st.sampled_from([start, end])) :]
        )
    try:
        found = FORMATS[name].read(text)
    except ValueError as error:
        assert all(line.strip() for line in str(error).split("\n"))
    else:
        assert all(value >= 0 for values in found.values() for value in values.values())
