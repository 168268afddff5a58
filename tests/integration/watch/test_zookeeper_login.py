"""The login at ZooKeeper and TLS: right, wrong, and never in a message."""

from __future__ import annotations

import dataclasses
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Settings, ZooKeeperLogin, ZooKeeperTls
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.errors import UserError
from kquota_spark.quotas.sources import Client, from_zookeeper
from kquota_spark.quotas.watch import Watcher
from tests.support.clusters.quota_nodes import payload, produce_rates, put, refusal
from tests.support.clusters.waiting import WITHIN_S

SECRET = "s3cret:canary"


def with_login(settings: Settings, **login: str) -> Settings:
    quotas = dataclasses.replace(settings.quotas, zookeeper_login=ZooKeeperLogin(**login))
    return dataclasses.replace(settings, quotas=quotas)


def test_a_digest_login_reads_what_is_closed_to_others(
    client: KazooClient, settings: Settings, watch: Callable[[Settings], Watcher], tmp_path: Path
) -> None:
    client.add_auth("digest", f"kafka:{SECRET}")
    put(client, "users/alice", payload(producer_byte_rate="1"))
    for path in ("/config/users/alice", "/config/users"):
        client.set_acls(path, [make_digest_acl("kafka", SECRET, all=True)])
    for wrong in ({}, {"user": "kafka", "password": "wrong-canary"}):
        said = str(refusal(with_login(settings, **wrong)))
        assert "no right to read /config/users: check the chroot in quotas.zookeeper_connect, " in said
        assert "quotas.zookeeper_login" in said and "canary" not in said
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n", encoding="utf-8")
    by_file = with_login(settings, user="kafka", password_file=str(secret))
    watch(by_file)
    assert produce_rates(by_file) == {"users/alice": 1.0}
    by_value = with_login(settings, user="kafka", password=SECRET)
    assert [str(each) for each in from_zookeeper(by_value.quotas, Client("alice", "x")).book] == [
        "users/alice"
    ]
    assert SECRET not in repr(by_value)


@pytest.mark.parametrize(
    "login", [{"user": "kafka"}, {"user": "kafka", "password": "a", "password_file": "b"}]
)
def test_a_login_needs_one_password(settings: Settings, login: dict[str, str]) -> None:
    with pytest.raises(
        UserError, match=r"quotas\.zookeeper_login: expected either password .* or password_file"
    ):
        Watcher(with_login(settings, **login)).start()


def certificate(root: Path, name: str, host: str = "IP:127.0.0.1", days: int = 2) -> tuple[str, str]:
    """A self-signed certificate and its key."""
    pem, key = root / f"{name}.pem", root / f"{name}.key"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
    valid = ["-days", str(days), "-addext", f"subjectAltName={host}"]
    subprocess.run([*made, *valid, "-keyout", str(key), "-out", str(pem)], check=True, capture_output=True)
    return str(pem), str(key)


def expired(root: Path) -> tuple[str, str]:
    """A certificate of the year 2020, signed by itself."""
    pem, key = certificate(root, "expired")
    request = ["openssl", "req", "-new", "-key", key, "-subj", "/CN=expired"]
    asked = subprocess.run(request, check=True, capture_output=True).stdout
    (root / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={root}/index\nnew_certs_dir={root}\nserial={root}/serial\n"
        "default_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n"
        "[e]\nsubjectAltName=IP:127.0.0.1\nbasicConstraints=CA:TRUE\n"
    )
    (root / "index").touch()
    (root / "serial").write_text("01\n")
    dates = ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]
    sign = [
        "openssl",
        "ca",
        "-batch",
        "-selfsign",
        "-notext",
        "-config",
        str(root / "ca.cnf"),
        "-keyfile",
        key,
    ]
    subprocess.run(
        [*sign, *dates, "-in", "/dev/stdin", "-out", pem], input=asked, check=True, capture_output=True
    )
    return pem, key


@contextmanager
def tls_in_front_of(port: int, pem: str, key: str) -> Iterator[int]:
    """A port that speaks TLS and hands on what it gets to a plain one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                accepted = listener.accept()[0]
                with suppress(OSError):
                    outer = context.wrap_socket(accepted, server_side=True)
                    inner = socket.create_connection(("127.0.0.1", port))
                    for ends in ((outer, inner), (inner, outer)):
                        threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def with_tls(settings: Settings, port: int, ca: str) -> Settings:
    connect = f"127.0.0.1:{port}/{settings.quotas.zookeeper_connect.partition('/')[2]}"
    tls = ZooKeeperTls(enabled=True, ca=ca)
    quotas = dataclasses.replace(settings.quotas, zookeeper_connect=connect, zookeeper_tls=tls)
    return dataclasses.replace(settings, quotas=quotas)


def port_of(zookeeper: Cluster) -> int:
    return int(zookeeper.zookeeper_connect.rpartition(":")[2])


def test_quotas_come_through_tls(
    zookeeper: Cluster,
    client: KazooClient,
    settings: Settings,
    watch: Callable[[Settings], Watcher],
    tmp_path: Path,
) -> None:
    put(client, "users/alice", payload(producer_byte_rate="1"))
    pem, key = certificate(tmp_path, "good")
    with tls_in_front_of(port_of(zookeeper), pem, key) as port:
        watch(with_tls(settings, port, pem)).stop()
    assert produce_rates(settings) == {"users/alice": 1.0}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("expired", "certificate refused: certificate has expired"),
        ("host", "certificate refused: IP address mismatch"),
        ("authority", "certificate refused: self-signed certificate"),
        ("plain", "no TLS there: "),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_tls_that_fails_says_why_and_never_falls_back(
    zookeeper: Cluster,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    reason: str,
) -> None:
    # No server is waited for long, as none comes; the one that is then asked why has time to say it.
    quick = dataclasses.replace(settings.quotas, connect_timeout=Duration(500))
    settings = dataclasses.replace(settings, quotas=quick)
    monkeypatch.setattr("kquota_spark.zookeeper.client._PROBE_S", WITHIN_S)
    if fault == "expired":
        pem, key = expired(tmp_path)
    else:
        pem, key = certificate(tmp_path, "it", "IP:127.0.0.2" if fault == "host" else "IP:127.0.0.1")
    trusted = certificate(tmp_path, "other")[0] if fault == "authority" else pem
    with tls_in_front_of(port_of(zookeeper), pem, key) as tls_port:
        port = port_of(zookeeper) if fault == "plain" else tls_port
        with pytest.raises(UserError) as raised:
            Watcher(with_tls(settings, port, trusted)).start()
    assert str(raised.value).startswith(f"ZooKeeper 127.0.0.1:{port}: {reason}")
    assert str(raised.value).endswith(": check quotas.zookeeper_tls and quotas.zookeeper_connect")


def test_a_missing_certificate_is_named(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"quotas\.zookeeper_tls\.ca: .*none\.pem: cannot be used: No such file"
    ):
        Watcher(with_tls(settings, 1, str(tmp_path / "none.pem"))).start()
