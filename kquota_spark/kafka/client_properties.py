"""Client properties in Kafka's own spelling, read from a file and put into kafka-python's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kquota_spark.errors import UserError

_MAX_BYTES = 1_000_000
_LOGIN = re.compile(r'(username|password)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s;]+))')
PYTHON_NAMES = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",  # librdkafka's spelling
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
"""What kafka-python calls the properties that say how to connect."""

_OF_LIBRDKAFKA = {
    "sasl.username", "sasl.password", "sasl.mechanisms",
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
}  # fmt: skip
_STORES = {"truststore": "ssl_cafile", "keystore": "ssl_certfile"}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM = "scram.ScramLoginModule"
_LOGIN_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    "GSSAPI": "",
}
"""SASL mechanisms, with Java's module below `org.apache.kafka.common.security`; empty for no user name and password."""


def read_properties(path: Path) -> dict[str, str]:
    """Read a Java properties file, e.g. the one that kafka-configs.sh takes as --command-config.

    Raises:
        UserError: the file cannot be read.
    """
    import javaproperties

    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(f"{path}: larger than {_MAX_BYTES} bytes, expected client properties")
        return dict(javaproperties.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text, expected client properties") from error
    except javaproperties.InvalidUEscapeError as error:
        raise UserError(f"{path}: {error}, expected four hexadecimal digits after \\u") from error


def python_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """The options of a kafka-python client. What has no bearing on the connection is left out.

    Raises:
        UserError: a login or a store of certificates that kafka-python has no way to use.
    """
    options: dict[str, Any] = {
        PYTHON_NAMES[name]: value for name, value in properties.items() if name in PYTHON_NAMES
    }
    for store, option in _STORES.items():
        path = properties.get(f"ssl.{store}.location")
        if path is not None:
            _require_pem(properties, store)
            options[option] = path
    for name, value in jaas_login(properties).items():
        options.setdefault(f"sasl_plain_{name}", value)
    protocol = options.get("security_protocol", "PLAINTEXT")
    if protocol not in _PROTOCOLS:
        raise UserError(f"security.protocol: {protocol!r}, expected one of {', '.join(_PROTOCOLS)}")
    if protocol.startswith("SASL"):
        _require_login(options)
    if properties.get("ssl.endpoint.identification.algorithm") == "":
        options["ssl_check_hostname"] = False
    return options


def connection_options(options: Mapping[str, str]) -> dict[str, str]:
    """How to connect, from consumer properties in Java's or librdkafka's spelling, in librdkafka's."""
    known = {name: value for name, value in options.items() if name in PYTHON_NAMES}
    known |= {f"sasl.{name}": value for name, value in jaas_login(options).items()}
    # Java reads the key and the certificates from one file, librdkafka from one or two.
    for store, names in (
        ("truststore", ("ssl.ca.location",)),
        ("keystore", ("ssl.certificate.location", "ssl.key.location")),
    ):
        location = options.get(f"ssl.{store}.location")
        if location is not None and options.get(f"ssl.{store}.type", "").upper() == "PEM":
            known |= dict.fromkeys(names, location)
    return known


def python_names(options: Mapping[str, str]) -> dict[str, str]:
    """`connection_options` in the words of kafka-python, none of them checked."""
    return {PYTHON_NAMES[name]: value for name, value in connection_options(options).items()}


def is_for_java_only(options: Mapping[str, str]) -> bool:
    """Whether a login or a store of certificates is in a form that only the Java client reads."""
    has_login = "sasl.jaas.config" not in options or len(jaas_login(options)) == 2
    stores = [store for store in _STORES if f"ssl.{store}.location" in options]
    return not has_login or any(options.get(f"ssl.{store}.type", "").upper() != "PEM" for store in stores)


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Consumer properties for Spark's Java client, from those that librdkafka takes.

    A user name and password become a JAAS line, PEM files the stores of TLS, so that one set of options serves
    the shipper, the checks and the job.

    Raises:
        UserError: certificate and key are in two files.
    """
    java = {name: value for name, value in options.items() if name not in _OF_LIBRDKAFKA}
    if "sasl.mechanisms" in options:
        java["sasl.mechanism"] = options["sasl.mechanisms"]
    if "ssl.ca.location" in options:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": options["ssl.ca.location"]}
    certificate, key = (options.get(f"ssl.{name}.location") for name in ("certificate", "key"))
    if certificate != key:
        raise UserError(
            "kafka.options: ssl.certificate.location and ssl.key.location differ: Spark's client reads both from one "
            "PEM file: join the two files, and name the result in both"
        )
    if certificate is not None:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}
    user, password = options.get("sasl.username"), options.get("sasl.password")
    if user is not None and password is not None:
        module = _LOGIN_MODULES.get(java.get("sasl.mechanism", "PLAIN")) or _SCRAM
        login = f"username={quoted(user)} password={quoted(password)}"
        java["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {login};"
    return java


def quoted(text: str) -> str:
    """A value of a JAAS line; it may hold any character."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def jaas_login(properties: Mapping[str, str]) -> dict[str, str]:
    """`username` and `password` of sasl.jaas.config, as far as they stand there."""
    found = _LOGIN.findall(properties.get("sasl.jaas.config", ""))
    return {name: re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in found}


def _require_login(options: dict[str, Any]) -> None:
    mechanism = options.setdefault("sasl_mechanism", "PLAIN")
    if mechanism not in _LOGIN_MODULES:
        raise UserError(f"sasl.mechanism: {mechanism!r}, expected one of {', '.join(_LOGIN_MODULES)}")
    if _LOGIN_MODULES[mechanism] and not {"sasl_plain_username", "sasl_plain_password"} <= options.keys():
        raise UserError(
            f"sasl.mechanism {mechanism} needs a login: give sasl.username and sasl.password, or sasl.jaas.config"
        )


def _require_pem(properties: Mapping[str, str], store: str) -> None:
    kind = properties.get(f"ssl.{store}.type", "JKS")
    if kind != "PEM":
        instead = "ssl.ca.location" if store == "truststore" else "ssl.certificate.location, ssl.key.location"
        raise UserError(
            f"ssl.{store}.type: only Java reads {kind}: export it as PEM and set ssl.{store}.type=PEM, or {instead}"
        )
