"""Names are written and read as Kafka's own Sanitizer does; the expected texts are its output (3.9.1, Java 17)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.quotas.names import desanitise, sanitise

_SETTINGS = settings(deadline=None, print_blob=True)

SANITISED = [
    ("a b", "a%20b"),
    ("a+b", "a%2Bb"),
    ("a*b", "a%2Ab"),
    ("CN=app 1,OU=x", "CN%3Dapp%201%2COU%3Dx"),
    ("user@EXAMPLE.COM", "user%40EXAMPLE.COM"),
    ("a/b", "a%2Fb"),
    ("éü", "%C3%A9%C3%BC"),
    ("~", "%7E"),
    ("aZ09.-_", "aZ09.-_"),
    ("<default>", "%3Cdefault%3E"),
    ("100%", "100%25"),
    ("a%2Bb", "a%252Bb"),
    ("::1", "%3A%3A1"),
    ("!'()", "%21%27%28%29"),
    ("\n\t\x00", "%0A%09%00"),
    ("\u2028", "%E2%80%A8"),
    ("😀", "%F0%9F%98%80"),
    ("", ""),
]


@pytest.mark.parametrize(("name", "text"), SANITISED)
def test_sanitiser_both_ways(name: str, text: str) -> None:
    assert sanitise(name) == text
    assert desanitise(text) == name


@pytest.mark.parametrize(
    ("name", "text"),
    [("\ud800x", "%3Fx"), ("x\udc00\ud800", "x%3F%3F"), ("\udc00😀\ud83d", "%3F%F0%9F%98%80%3F")],
)
def test_a_lone_surrogate_is_written_as_a_question_mark(name: str, text: str) -> None:
    assert sanitise(name) == text


@pytest.mark.parametrize(
    ("text", "name"),
    [("a+b%2b", "a b+"), ("a~b", "a~b"), ("é", "é"), ("%41", "A"), ("%00", "\0"), ("<default>", "<default>")],
)
def test_decoding_is_that_of_forms_and_other_characters_stay(text: str, name: str) -> None:
    assert desanitise(text) == name


@pytest.mark.parametrize(
    "text",
    ["%", "a%2", "%1", "%%", "%zz", "%0x", "% 1", "%-1", "%1+", "%41%4", "%😀", "%1😀", "%\U0001d7ce1"],
)
def test_what_kafka_would_not_decode(text: str) -> None:
    with pytest.raises(ValueError, match="in a name is no byte in two hexadecimal digits"):
        desanitise(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("%C3", "\ufffd"),
        ("%FF", "\ufffd"),
        ("%C3%28", "\ufffd("),
        ("%C3+", "\ufffd "),
        ("%C3é", "\ufffdé"),
        ("%F0%9F%98", "\ufffd"),
        ("%E2%82%E2%82%AC", "\ufffd€"),
        ("%E2%28%A1", "\ufffd(\ufffd"),
        ("%C0%80", "\ufffd\ufffd"),
        ("%E0%80%80", "\ufffd\ufffd\ufffd"),
        ("%F4%90%80%80", "\ufffd\ufffd\ufffd\ufffd"),
        ("%ED%A0%80", "\ufffd"),
        ("%ED%A0%BD%ED%B8%80", "\ufffd\ufffd"),
    ],
)
def test_bytes_that_are_not_utf_8_are_replaced_and_not_refused(text: str, name: str) -> None:
    assert desanitise(text) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [("%+1", "\x01"), ("%+f", "\x0f"), ("%-0", "\0"), ("%\u06631", "1"), ("%\uff11\uff21", "\x1a")],
)
def test_bytes_may_be_spelled_in_any_way_that_java_parses(text: str, name: str) -> None:
    # %\u0663 is the Arabic digit three: 3 * 16 + 1 = 0x31. Full-width 1 and A: 1 * 16 + 10 = 0x1A.
    assert desanitise(text) == name


@_SETTINGS
@given(st.text(max_size=20))
def test_sanitiser_round_trip(name: str) -> None:
    assert desanitise(sanitise(name)) == name
    assert set(sanitise(name)) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_%")


@_SETTINGS
@given(st.text(max_size=12), st.text(max_size=12))
def test_different_names_have_different_texts(one: str, other: str) -> None:
    assert (sanitise(one) == sanitise(other)) == (one == other)


def test_of_all_names_of_two_characters_no_two_have_the_same_text() -> None:
    # Texts that are drawn by chance hardly ever differ in one character only.
    characters = list(map(chr, range(128)))
    names = ["", *characters, *(one + other for one in characters for other in characters)]
    assert len({sanitise(name) for name in names}) == len(names) == 1 + 128 + 128**2
