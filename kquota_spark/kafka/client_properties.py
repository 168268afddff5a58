"""Client properties in Kafka's own spelling: read from a file, and translated for each client library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kquota_spark.errors import UserError

_MAX_BYTES = 1_000_000
_JAAS = re.compile(
    r"\b(username|password|clientId|clientSecret|scope|extension_\w+)\s*=\s*"
    r'(?:"((?:\\.|[^"\\])*)"|([^\s;]+))'
)
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
"""Names of kafka-python for the properties of a connection."""

_OF_TOKENS = {
    "client_id": ("sasl.oauthbearer.client.id", "clientId"),
    "client_secret": ("sasl.oauthbearer.client.secret", "clientSecret"),
    "scope": ("sasl.oauthbearer.scope", "scope"),
}
"""Properties of librdkafka about tokens, each with its name in Java's JAAS line."""
_EXTENSIONS, _TOKEN_CA = "sasl.oauthbearer.extensions", "https.ca.location"
_OF_LIBRDKAFKA = {
    "sasl.username", "sasl.password", "sasl.mechanisms", "sasl.oauthbearer.method",
    *(name for name, _ in _OF_TOKENS.values()), _EXTENSIONS, _TOKEN_CA,
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
}  # fmt: skip
_STORES = {"truststore": "ssl_cafile", "keystore": "ssl_certfile"}
OAUTHBEARER, MSK_IAM = "OAUTHBEARER", "AWS_MSK_IAM"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLogin"
_MSK = "software.amazon.msk.auth.iam.IAM"
MSK_MODULE = f"{_MSK}LoginModule"
"""Java's class for AWS_MSK_IAM, which is not part of Kafka."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM = "scram.ScramLoginModule"
_LOGIN_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    "GSSAPI": "",
    OAUTHBEARER: "",
    MSK_IAM: "",
}
"""Java's login module of each SASL mechanism, below `org.apache.kafka.common.security`.

Empty for mechanisms without a user name and password.
"""

_PLAIN = PYTHON_NAMES.keys() - {"sasl.password", "ssl.key.password"} | {
    "sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.scope", _TOKEN_CA, _ENDPOINT,
    "sasl.client.callback.handler.class", "sasl.login.callback.handler.class",
    "ssl.truststore.location", "ssl.truststore.type", "ssl.keystore.location", "ssl.keystore.type",
    "ssl.endpoint.identification.algorithm",
}  # fmt: skip
"""Properties of a connection that hold no secret."""
_SECRET = re.compile(r"(sasl|ssl)\..*(password|secret|jaas|\.key$|certificate)")


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """The endpoint and the client for requesting tokens, by OAuth's grant of client credentials."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """SASL extensions, sent to the broker with the token."""
    ca: str = ""
    """A PEM file with the authorities of the endpoint; empty for those of the system."""


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
    """The options of a kafka-python client; properties that do not concern the connection are left out.

    Raises:
        UserError: kafka-python cannot use the login or a store of certificates.
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
    if mechanism(properties) == MSK_IAM:
        options["sasl_mechanism"] = OAUTHBEARER  # see connection_options
    protocol = options.get("security_protocol", "PLAINTEXT")
    if protocol not in _PROTOCOLS:
        raise UserError(f"security.protocol: {protocol!r}, expected one of {', '.join(_PROTOCOLS)}")
    if protocol.startswith("SASL"):
        _require_login(options)
    if properties.get("ssl.endpoint.identification.algorithm") == "":
        options["ssl_check_hostname"] = False
    return options


def connection_options(options: Mapping[str, str]) -> dict[str, str]:
    """The connection properties for librdkafka, from consumer properties in Java's or librdkafka's spelling."""
    known = {name: value for name, value in options.items() if name in PYTHON_NAMES}
    if mechanism(options) == MSK_IAM:
        # Brokers accept the same signature as a token: clients other than Java's send it like that.
        known |= {name: OAUTHBEARER for name in known if PYTHON_NAMES[name] == "sasl_mechanism"}
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
    """`connection_options` under kafka-python's names, unchecked."""
    return {PYTHON_NAMES[name]: value for name, value in connection_options(options).items()}


def is_for_java_only(options: Mapping[str, str]) -> bool:
    """Whether a login or a store of certificates is in a form that only the Java client reads."""
    has_login = "sasl.jaas.config" not in options or len(jaas_login(options)) == 2
    has_login = {OAUTHBEARER: _ENDPOINT in options, MSK_IAM: True}.get(mechanism(options), has_login)
    stores = [store for store in _STORES if f"ssl.{store}.location" in options]
    return not has_login or any(options.get(f"ssl.{store}.type", "").upper() != "PEM" for store in stores)


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Consumer properties for Spark's Java client, from those for librdkafka.

    A user name and password become a JAAS line, and PEM files become the stores of TLS. One set of options then serves
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
    if java.get("sasl.mechanism") in _TOKENS_OF_JAVA:
        return _TOKENS_OF_JAVA[java["sasl.mechanism"]](options) | java
    user, password = options.get("sasl.username"), options.get("sasl.password")
    if user is not None and password is not None:
        module = _LOGIN_MODULES.get(java.get("sasl.mechanism", "PLAIN")) or _SCRAM
        login = f"username={quoted(user)} password={quoted(password)}"
        java["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {login};"
    return java


def plain_login(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with a user name and a password in place of a JAAS line that has both."""
    login = jaas_login(properties)
    if len(login) < 2:
        return dict(properties)
    others = {name: value for name, value in properties.items() if name != "sasl.jaas.config"}
    return others | {f"sasl.{name}": value for name, value in login.items()}


def user_name(options: Mapping[str, str]) -> str:
    """The user that logs in with a password; empty for another login."""
    return options.get("sasl.username") or jaas_login(options).get("username", "")


def settings_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The login for a settings file: a secret is `${NAME}` of an environment variable.

    Properties that do not concern the connection are left out.

    Args:
        properties: as in a file for --command-config.
    """
    found = {}
    for name, value in properties.items():
        if name in _PLAIN:
            found[name] = value
        elif _SECRET.match(name):
            found[name] = f"${{{_variable(name)}}}"
    return found


def secret_variables(properties: Mapping[str, str]) -> list[str]:
    """The environment variables that `settings_options` names for these properties."""
    return [_variable(name) for name in settings_options(properties) if name not in _PLAIN]


def _variable(name: str) -> str:
    return "KQUOTA_" + re.sub(r"\W", "_", name).upper()


def mechanism(options: Mapping[str, str]) -> str:
    """The SASL mechanism, in either spelling; empty for none."""
    return options.get("sasl.mechanism") or options.get("sasl.mechanisms", "")


def token_login(options: Mapping[str, str]) -> TokenLogin:
    """The login for the mechanism OAUTHBEARER, from properties in Java's or librdkafka's spelling.

    Raises:
        UserError: a part of it is missing.
    """
    of_jaas = _of_jaas(options)
    found = {
        part: options.get(name) or of_jaas.get(of_java, "") for part, (name, of_java) in _OF_TOKENS.items()
    }
    missing = [_OF_TOKENS[part][0] for part in ("client_id", "client_secret") if not found[part]]
    if not options.get(_ENDPOINT):
        missing.insert(0, _ENDPOINT)
    if missing:
        raise UserError(
            f"sasl.mechanism {OAUTHBEARER} needs a client of a token endpoint: give {', '.join(missing)}"
        )
    extensions = {
        name.removeprefix("extension_"): value
        for name, value in of_jaas.items()
        if name.startswith("extension_")
    }
    extensions |= dict(pair.split("=", 1) for pair in options.get(_EXTENSIONS, "").split(",") if "=" in pair)
    return TokenLogin(**found, url=options[_ENDPOINT], extensions=extensions, ca=options.get(_TOKEN_CA, ""))


def _tokens_of_java(options: Mapping[str, str]) -> dict[str, str]:
    """The token login as properties of the Java client; a JAAS line of the user's own stays as it is."""
    if "sasl.jaas.config" in options:
        return {"sasl.login.callback.handler.class": f"{_OAUTH}CallbackHandler"}
    login = token_login(options)
    parts = {of_java: getattr(login, part) for part, (_, of_java) in _OF_TOKENS.items()}
    parts |= {f"extension_{name}": value for name, value in login.extensions.items()}
    if login.ca:
        parts |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": login.ca}
    line = " ".join(f"{name}={quoted(value)}" for name, value in parts.items() if value)
    return {
        "sasl.jaas.config": f"{_OAUTH}Module required {line};",
        "sasl.login.callback.handler.class": f"{_OAUTH}CallbackHandler",
    }


def _msk_of_java(_: Mapping[str, str]) -> dict[str, str]:
    return {
        "sasl.jaas.config": f"{MSK_MODULE} required;",
        "sasl.client.callback.handler.class": f"{_MSK}ClientCallbackHandler",
    }


_TOKENS_OF_JAVA = {OAUTHBEARER: _tokens_of_java, MSK_IAM: _msk_of_java}


def quoted(text: str) -> str:
    """A value in quotes, for a JAAS line; it may hold any character."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def jaas_login(properties: Mapping[str, str]) -> dict[str, str]:
    """`username` and `password` of sasl.jaas.config; one that is not there is left out."""
    return {name: value for name, value in _of_jaas(properties).items() if name in ("username", "password")}


def _of_jaas(properties: Mapping[str, str]) -> dict[str, str]:
    found = _JAAS.findall(properties.get("sasl.jaas.config", ""))
    return {name: re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in found}


def _require_login(options: dict[str, Any]) -> None:
    chosen = options.setdefault("sasl_mechanism", "PLAIN")
    if chosen not in _LOGIN_MODULES:
        raise UserError(f"sasl.mechanism: {chosen!r}, expected one of {', '.join(_LOGIN_MODULES)}")
    if _LOGIN_MODULES[chosen] and not {"sasl_plain_username", "sasl_plain_password"} <= options.keys():
        raise UserError(
            f"sasl.mechanism {chosen} needs a login: give sasl.username and sasl.password, or sasl.jaas.config"
        )


def _require_pem(properties: Mapping[str, str], store: str) -> None:
    kind = properties.get(f"ssl.{store}.type", "JKS")
    if kind != "PEM":
        instead = "ssl.ca.location" if store == "truststore" else "ssl.certificate.location, ssl.key.location"
        raise UserError(
            f"ssl.{store}.type: only Java reads {kind}: export it as PEM and set ssl.{store}.type=PEM, or {instead}"
        )
