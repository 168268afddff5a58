"""Values from files: read once, checked, and never shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kquota_spark.config.loader import load_settings
from kquota_spark.errors import UserError
from kquota_spark.kafka.client_properties import connection_options, is_for_java_only, java_options


def secret_in(directory: Path, content: bytes, mode: int = 0o600) -> Path:
    path = directory / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def password_of(directory: Path, value: str) -> str:
    config = directory / "kquota.yaml"
    config.write_text(f"kafka: {{options: {{sasl.password: '{value}'}}}}\n", encoding="utf-8")
    return load_settings(config).kafka.options["sasl.password"]


def problem_of(directory: Path, text: str) -> str:
    config = directory / "kquota.yaml"
    config.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as raised:
        load_settings(config).kafka.options  # noqa: B018
    return str(raised.value).removeprefix(f"{config}: ")


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"s3cret", "s3cret"), (b"s3cret\n", "s3cret"), (b"s3cret\r\n", "s3cret"), (b" a b \n\n", " a b "),
        (b"a\nb\n", "a\nb"), ("p\u00e4ss".encode(), "p\u00e4ss"),
        (b"${HOME} ${file:/etc/passwd}", "${HOME} ${file:/etc/passwd}"),
    ],
)  # fmt: skip
def test_the_text_of_a_file_without_its_line_end(
    tmp_path: Path, content: bytes, password: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = secret_in(tmp_path, content)
    assert password_of(tmp_path, f"${{file:{path}}}") == password
    assert password_of(tmp_path, f"a${{file:{path}}}b") == f"a{password}b"
    assert capfd.readouterr() == ("", "")


def test_a_file_that_every_user_can_read_is_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = secret_in(tmp_path, b"s3cret", 0o644)
    assert password_of(tmp_path, f"${{file:{path}}}") == "s3cret"
    assert capfd.readouterr() == ("", f"warning: {path} can be read by every user: chmod o-r\n")


def test_files_that_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").write_bytes(b"\n")
    (tmp_path / "large").write_bytes(b"x" * 65_537)
    (tmp_path / "latin-1").write_bytes(b"s3cret\xff")
    expected = {
        "gone": " cannot be read: No such file or directory",
        ".": " cannot be read: Is a directory",
        "fifo": ": no regular file",
        "empty": ": empty",
        "large": ": larger than 65536 bytes, expected one value",
        "latin-1": ": not UTF-8 text",
    }
    for name, problem in expected.items():
        found = problem_of(tmp_path, f"kafka: {{options: {{sasl.password: '${{file:{tmp_path}/{name}}}'}}}}")
        assert found == f"kafka.options.sasl.password: file {tmp_path}/{name}{problem}"


def test_a_secret_at_the_wrong_place_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = secret_in(tmp_path, b"s3cret")
    monkeypatch.setenv("KQUOTA_TEST_SECRET", "s3cret" * 20)
    for value in (f"${{file:{path}}}", "${KQUOTA_TEST_SECRET}"):
        for key in (
            "stream: {trigger",
            "kafka: {envelope",
            "broker: {log_time_zone",
            "broker: {quota_window_num",
        ):
            problem = problem_of(tmp_path, f"{key}: '{value}'}}")
            assert value in problem
            assert "s3cret" not in problem


LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="a\\"b\\\\";'
LIBRDKAFKA = LOGIN | {
    "sasl.username": "ann", "sasl.password": 'a"b\\', "ssl.ca.location": "ca.pem",
    "ssl.certificate.location": "me.pem", "ssl.key.location": "me.pem", "ssl.key.password": "k",
}  # fmt: skip
JAVA = LOGIN | {
    "sasl.jaas.config": JAAS, "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem",
    "ssl.keystore.type": "PEM", "ssl.keystore.location": "me.pem", "ssl.key.password": "k",
}  # fmt: skip


def test_options_in_either_spelling_serve_both_clients() -> None:
    assert java_options(LIBRDKAFKA) == JAVA == java_options(JAVA)
    assert connection_options(JAVA) == LIBRDKAFKA == connection_options(LIBRDKAFKA)
    assert not is_for_java_only(JAVA)
    assert not is_for_java_only(LIBRDKAFKA)
    assert java_options({"sasl.mechanisms": "PLAIN", "fetch.max.bytes": "1"}) == {
        "sasl.mechanism": "PLAIN",
        "fetch.max.bytes": "1",
    }


def test_what_only_java_reads() -> None:
    assert is_for_java_only({"ssl.truststore.location": "ca.jks"})
    assert is_for_java_only({"ssl.keystore.location": "me.p12", "ssl.keystore.type": "PKCS12"})
    assert is_for_java_only({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"})


def test_a_key_beside_its_certificate_is_refused() -> None:
    with pytest.raises(UserError, match=r"join the two files"):
        java_options({"ssl.certificate.location": "me.pem", "ssl.key.location": "key.pem"})
