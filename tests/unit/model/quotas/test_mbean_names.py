"""JMX names are those of a broker: literals are from real brokers, or the output of Kafka's and Java's own classes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.quotas.mbean_names import (
    MBeanName,
    bucket_tags,
    mbean_name,
    parse_mbean_name,
    tagged_bucket,
)
from kquota_spark.model.quotas.resolve import Bucket

_SETTINGS = settings(deadline=None, print_blob=True)

REAL = [
    ("kafka.server:client-id=etl-1,type=Fetch,user=alice", "Fetch", Bucket("alice", "etl-1")),
    (
        r'kafka.server:client-id="a;b=c,\"d\"",type=Fetch,user=CN%3Dapp-1%2COU%3Dx',
        "Fetch",
        Bucket("CN=app-1,OU=x", 'a;b=c,"d"'),
    ),
    ('kafka.server:client-id="fire&forget",type=Produce,user=dave', "Produce", Bucket("dave", "fire&forget")),
    ('kafka.server:client-id="sp ace ünï",type=Request', "Request", Bucket("", "sp ace ünï")),
    ("kafka.server:client-id=grp-1,type=ControllerMutation", "ControllerMutation", Bucket("", "grp-1")),
    (
        "kafka.server:type=Produce,user=team%3Apay%2Bments%40corp",
        "Produce",
        Bucket("team:pay+ments@corp", ""),
    ),
    ("kafka.server:type=Produce", "Produce", Bucket("", "")),
]


@pytest.mark.parametrize(("text", "kind", "bucket"), REAL)
def test_names_of_real_brokers_in_the_order_of_a_collector(text: str, kind: str, bucket: Bucket) -> None:
    name = parse_mbean_name(text)
    assert (name.domain, name.type) == ("kafka.server", kind)
    assert tagged_bucket(name.tags) == bucket


@pytest.mark.parametrize(
    ("bucket", "text"),
    [
        (Bucket("alice", "my:client"), 'kafka.server:type=Produce,user=alice,client-id="my:client"'),
        (Bucket("alice", ""), "kafka.server:type=Produce,user=alice"),
        (Bucket("", "etl-1"), "kafka.server:type=Produce,client-id=etl-1"),
        (Bucket("", ""), "kafka.server:type=Produce"),
        (Bucket("a~*é", "a b"), "kafka.server:type=Produce,user=a%7E%2A%C3%A9,client-id=a b"),
    ],
)
def test_names_in_the_order_of_a_broker(bucket: Bucket, text: str) -> None:
    assert mbean_name("Produce", bucket_tags(bucket)) == text
    assert tagged_bucket(parse_mbean_name(text).tags) == bucket


@pytest.mark.parametrize("client_id", ["etl-1", "a b", "a\tb", "a.b", "a%b", "a_b", " ", "-", "09azAZ"])
def test_client_ids_that_need_no_quotes(client_id: str) -> None:
    name = f"kafka.server:type=Fetch,client-id={client_id}"
    assert mbean_name("Fetch", {"client-id": client_id}) == name
    assert parse_mbean_name(name) == MBeanName("kafka.server", "Fetch", {"client-id": client_id})


@pytest.mark.parametrize(
    ("client_id", "quoted"),
    [
        ("my:client", '"my:client"'),
        ("a+b", '"a+b"'),
        ("a=b,c", '"a=b,c"'),
        ("~", '"~"'),
        ("é", '"é"'),
        ("😀", '"😀"'),
        ("\r", '"\r"'),
        ("*", r'"\*"'),
        ("?", r'"\?"'),
        ("\\", r'"\\"'),
        ('"', r'"\""'),
        ("a\nb", r'"a\nb"'),
        ("a\\nb", r'"a\\nb"'),
        ('a"*?\\\nb', r'"a\"\*\?\\\nb"'),
    ],
)
def test_client_ids_that_are_quoted(client_id: str, quoted: str) -> None:
    name = f"kafka.server:type=Fetch,client-id={quoted}"
    assert mbean_name("Fetch", {"client-id": client_id}) == name
    assert parse_mbean_name(name) == MBeanName("kafka.server", "Fetch", {"client-id": client_id})


def test_tags_of_a_callback_of_ones_own_are_kept_and_name_no_bucket() -> None:
    # JmxReporter.getMBeanName on these tags; those without a key or a value are left out.
    tags = {"user": "a%20b", "client-id": "my:client", "x": "", "": "y", "tenant": "é*"}
    text = r'kafka.server:type=Produce,user=a%20b,client-id="my:client",tenant="é\*"'
    assert mbean_name("Produce", tags) == text
    parsed = parse_mbean_name(text).tags
    assert parsed == {"user": "a%20b", "client-id": "my:client", "tenant": "é*"}
    assert tagged_bucket(parsed) is None


def test_sensors_of_connections_have_tags_for_listener_and_ip() -> None:
    name = 'kafka.server:type=socket-server-metrics,ip="0:0:0:0:0:0:0:1"'
    assert mbean_name("socket-server-metrics", {"ip": "0:0:0:0:0:0:0:1"}) == name
    assert parse_mbean_name(name).tags == {"ip": "0:0:0:0:0:0:0:1"}
    # From a real broker.
    real = "kafka.server:listener=SASL_PLAINTEXT,networkProcessor=0,type=socket-server-metrics"
    tags = {"listener": "SASL_PLAINTEXT", "networkProcessor": "0"}
    assert parse_mbean_name(real) == MBeanName("kafka.server", "socket-server-metrics", tags)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kafka.server",
        "kafka.server:",
        "kafka.server:type",
        "kafka.server:=x",
        "kafka.server:type=Produce,",
        "kafka.server:type=Produce,,user=a",
        "kafka.server:type=Produce,*",
        "kafka.server:type=Produce,user=*",
        "kafka.server:type=Produce,user=a?b",
        "kafka.*:type=Produce",
        "kafka.server:type=Pro:duce",
        "kafka.server:type=Pro=duce",
        'kafka.server:type=Produce,client-id="abc',
        'kafka.server:type=Produce,client-id="abc\\"',
        'kafka.server:type=Produce,client-id="a"b',
        'kafka.server:type=Produce,client-id=a"b',
        'kafka.server:type=Produce,client-id="a*b"',
        'kafka.server:type=Produce,client-id="a\nb"',
        'kafka.server:type=Produce,client-id="a\\xb"',
        "kafka.server:type=Produce,client-id=a\nb",
    ],
)
def test_what_java_takes_for_no_name_of_one_mbean(text: str) -> None:
    with pytest.raises(ValueError, match="is no MBean name: expected domain:key=value"):
        parse_mbean_name(text)


def test_a_repeated_key_and_a_missing_type_are_named() -> None:
    with pytest.raises(ValueError, match="is no MBean name: user stands in it twice"):
        parse_mbean_name("kafka.server:type=Produce,user=a,user=b")
    with pytest.raises(ValueError, match="is no MBean name: it has no type"):
        parse_mbean_name("kafka.server:user=a")


def test_a_user_that_is_not_sanitised_is_refused() -> None:
    with pytest.raises(ValueError, match="in a name is no byte"):
        tagged_bucket({"user": "100%"})


@_SETTINGS
@given(st.builds(Bucket, st.text(max_size=12), st.text(max_size=12)))
def test_bucket_round_trip_in_any_order(bucket: Bucket) -> None:
    text = mbean_name("Produce", bucket_tags(bucket))
    assert tagged_bucket(parse_mbean_name(text).tags) == bucket
    tags = dict(reversed(bucket_tags(bucket).items()))
    assert parse_mbean_name(mbean_name("Produce", tags)).tags == parse_mbean_name(text).tags


KEYS = st.text(st.characters(exclude_characters="=,:*?\n", exclude_categories=["Cs"]), min_size=1, max_size=6)


@_SETTINGS
@given(st.dictionaries(KEYS.filter(lambda key: key != "type"), st.text(min_size=1, max_size=8), max_size=4))
def test_tag_round_trip(tags: dict[str, str]) -> None:
    assert parse_mbean_name(mbean_name("Produce", tags)) == MBeanName("kafka.server", "Produce", tags)
