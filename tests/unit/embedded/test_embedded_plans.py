"""The arithmetic of load plans, the paths of quotas, the text of broker settings."""

from __future__ import annotations

import pytest

from kquota_spark.cli.main import main as kquota
from kquota_spark.embedded.demo.__main__ import _chosen
from kquota_spark.embedded.demo.__main__ import main as demo
from kquota_spark.embedded.demo.load import Burst, sending_s
from kquota_spark.embedded.settings import jaas_line, java_properties
from tests.support.clusters.zookeeper_edits import set_quota


@pytest.mark.parametrize(
    ("elapsed_s", "expected_s"),
    [
        (0.0, 0.0),
        (3.0, 0.0),  # silent until 4
        (5.0, 1.0),
        (6.0, 2.0),
        (9.5, 2.0),  # silent from 6 to 10
        (11.5, 3.5),  # 2 of the first cycle and 1.5
    ],
)
def test_a_burst_sends_after_its_silence(elapsed_s: float, expected_s: float) -> None:
    assert sending_s(elapsed_s, Burst(idle_s=4.0, send_s=2.0)) == expected_s
    assert sending_s(elapsed_s, None) == elapsed_s


# The sanitised forms are outputs of Kafka's own org.apache.kafka.common.utils.Sanitizer.
def test_an_ip_stands_alone() -> None:
    with pytest.raises(ValueError, match="an ip stands alone"):
        set_quota("nowhere:1", user="alice", ip="10.0.0.1", connection_creation_rate=1)


def test_names_and_passwords_are_quoted_in_the_jaas_line() -> None:
    assert jaas_line({'a"b': "c\\d"}, "secret").endswith(' "user_a\\"b"="c\\\\d";')


def test_properties_are_ascii_and_keep_what_java_would_drop() -> None:
    # U+1F600 is two UTF-16 units, as Java counts.
    assert java_properties({"key": " ü\\😀=:#"}) == "key=\\ \\u00fc\\\\\\ud83d\\ude00\\=\\:\\#\n"


def test_the_demo_takes_the_kafka_and_the_kind_that_are_asked_for() -> None:
    def chosen(**variables: str) -> tuple[str, bool]:
        found = _chosen(variables)
        return found.kafka, found.is_kraft

    assert chosen() == ("3.9.1", False)
    assert chosen(KAFKA="3.7.2") == ("3.7.2", False)
    assert chosen(KAFKA="3.7.2", KIND="kraft") == ("3.7.2", True)
    assert chosen(KAFKA="4.3.0") == ("4.3.0", True)


def test_the_command_of_the_demo_says_which_versions_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert kquota(["demo", "--kafka", "3.8"]) == 1
    assert capsys.readouterr().err == "demo: --kafka: '3.8', expected 3.9.1 or 3.7.2 or 4.3.0\n"
    assert kquota(["demo", "--kafka", "4.3.0", "--kind", "zookeeper"]) == 1
    assert capsys.readouterr().err == "demo: --kind: 'zookeeper', expected kraft\n"


def test_what_enforcement_in_the_demo_needs_is_named_as_the_user_gave_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert kquota(["demo", "--enforce", "--seconds", "60"]) == 1
    told = "demo: --enforce needs --seconds of 150 or more: policies judge minutes\n"
    assert capsys.readouterr().err == told
    assert demo({"ENFORCE": "1", "DEMO_SECONDS": "60"}) == 1
    told = "demo: ENFORCE=1 needs DEMO_SECONDS of 150 or more: policies judge minutes\n"
    assert capsys.readouterr().err == told
    assert kquota(["demo", "--enforce", "--source", "jmx"]) == 1
    assert capsys.readouterr().err == "demo: --enforce needs a request log: leave --source out\n"


@pytest.mark.parametrize("kind", [{}, {"KIND": "kraft"}, {"KAFKA": "4.3.0"}])
def test_enforcement_is_shown_with_zookeeper_and_with_kraft(kind: dict[str, str]) -> None:
    assert _chosen({"ENFORCE": "1", **kind}).is_enforced
