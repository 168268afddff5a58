"""Settings in which each secret is a canary of its own, and where a canary of them shows."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from deltalake import DeltaTable

from tests.support.places import ROOT

Way = Literal["environment", "file"]
NAMES = (
    "sasl", "key", "keystore", "pem", "ship_sasl", "ship_key", "collect_sasl", "jolokia",
    "s3", "s3_session", "s3_encryption", "azure", "digest", "zookeeper_key", "callback",
    "webhook", "alertmanager", "mail",
)  # fmt: skip
"""One for each place of the settings that may hold a secret."""
SECRETS = {name: f"canary-{name}-{number:04d}" for number, name in enumerate(NAMES, 7_301)}
_FOLDER = "secrets"
_KAFKA = """\
    sasl.username: auditor
    sasl.password: {sasl}
    ssl.key.password: {key}
    ssl.keystore.password: {keystore}
    ssl.keystore.key: {pem}
"""
_HELD = """\
storage_options:
  AWS_ACCESS_KEY_ID: id
  AWS_SECRET_ACCESS_KEY: {s3}
  AWS_SESSION_TOKEN: {s3_session}
  fs.s3a.encryption.key: {s3_encryption}
  fs.azure.sas.box.account.blob.core.windows.net: {azure}
ship:
  state_dir: {root}/ship
  options: {{security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.username: shipper,
    sasl.password: {ship_sasl}, ssl.key.password: {ship_key}}}
collect: {{jmx: {{brokers: {{1: "{jolokia_url}"}}, interval: 1 s, user: monitor, password: {jolokia},
  options: {{security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.username: shipper,
    sasl.password: {collect_sasl}}}}}}}
notifications:
  routes:
    hook: {{kind: webhook, url: "http://127.0.0.1:1/hook", secret: {webhook}}}
    alerts: {{kind: alertmanager, url: "http://127.0.0.1:1", user: kquota, password: {alertmanager}}}
    mail: {{kind: mail, host: 127.0.0.1, port: 1, sender: kquota@example.com, to: [ops@example.com], user: kquota,
      password: {mail}}}
"""
_QUOTAS = """\
  zookeeper_login: {{user: audit, password: {digest}}}
  zookeeper_tls: {{key_password: {zookeeper_key}}}
  callback_options: {{token: {callback}}}
"""
_EVERY_LOG = "import logging\nlogging.basicConfig(level=1)\nlogging.debug('all logs are at debug')\n"
"""What Python runs at the start of each process, workers of Spark too."""
AT_DEBUG = "DEBUG:root:all logs are at debug"
"""What each Python process prints first."""


@dataclass(frozen=True)
class Planted:
    """A folder with settings that name every secret, and how to start a process in it.

    Attributes:
        root: the folder; what a process writes goes below it.
        secrets: by name.
        way: where the settings take them from.
    """

    root: Path
    way: Way
    secrets: Mapping[str, str] = field(default_factory=lambda: SECRETS)

    @property
    def config(self) -> Path:
        """The settings."""
        return self.root / "kquota.yaml"

    def environment(self, **further: str) -> dict[str, str]:
        """What a process starts with: DEBUG for all logs, no folder outside of `root`, secrets if they are there."""
        paths = [str(self.root / "debug"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {f"CANARY_{name.upper()}": secret for name, secret in self.secrets.items()}
        return {
            **os.environ,
            **(own if self.way == "environment" else {}),
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDEVMODE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(self.root / "tmp"),
            "HOME": str(self.root),
            **further,
        }

    def write(
        self, head: str, kafka: str, quotas: str, jolokia_url: str = "http://127.0.0.1:1/jolokia"
    ) -> None:
        """Write the settings.

        Args:
            head: keys of the outermost level.
            kafka: of the section `kafka`; must end within `options`.
            quotas: of the section `quotas`.
            jolokia_url: address of an agent.
        """
        for name in ("debug", "tmp", _FOLDER):
            (self.root / name).mkdir(mode=0o700)
        (self.root / "debug" / "sitecustomize.py").write_text(_EVERY_LOG, encoding="utf-8")
        places = {name: f'"{self._place(name)}"' for name in self.secrets}
        text = f"{head}\nkafka:\n{kafka}{_KAFKA}quotas:\n{{quotas}}{_QUOTAS}{_HELD}".replace(
            "{quotas}", quotas
        )
        text = text.format(root=self.root, jolokia_url=jolokia_url, **places)
        self.config.write_text(text, encoding="utf-8")

    def _place(self, name: str) -> str:
        if self.way == "environment":
            return f"${{CANARY_{name.upper()}}}"
        path = self.root / _FOLDER / name
        path.touch(mode=0o600)
        path.write_text(self.secrets[name], encoding="utf-8")
        return f"${{file:{path}}}"

    def written(self) -> dict[str, bytes]:
        """Every file below the folder but those of the secrets, and the rows of every Delta table."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                if path.is_file() and path.parent.name != _FOLDER:
                    found[str(path.relative_to(self.root))] = path.read_bytes()
        for log in sorted(self.root.rglob("_delta_log")):
            rows = DeltaTable(str(log.parent)).to_pyarrow_table().to_pylist()
            found[f"rows of {log.parent.relative_to(self.root)}"] = repr(rows).encode()
        return found

    @contextmanager
    def watched(
        self, seen: dict[str, bytes], kinds: tuple[str, ...] = ("cmdline", "environ")
    ) -> Iterator[None]:
        """Note what /proc says of all processes with this environment, again and again until the block ends.

        Args:
            seen: gets the texts, by kind and process.
            kinds: of files.
        """
        is_over = threading.Event()

        def run() -> None:
            while not is_over.wait(0.02):
                self._look(seen, kinds)

        watcher = threading.Thread(target=run)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()

    def _look(self, seen: dict[str, bytes], kinds: tuple[str, ...]) -> None:
        mark = f"TMPDIR={self.root}/tmp\0".encode()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (path / "environ").read_bytes():
                    seen.update(
                        {
                            f"{kind} {path.name} {hash(text)}": text
                            for kind in kinds
                            if (text := (path / kind).read_bytes())
                        }
                    )


def forms(secret: str) -> list[bytes]:
    """A secret as itself, in hexadecimal digits, in UTF-16, and in base64 wherever it begins."""
    plain = secret.encode()
    shifted = [base64.b64encode(b"x" * shift + plain)[(0, 2, 3)[shift] : -4] for shift in range(3)]
    return [plain, plain.hex().encode(), secret.encode("utf-16-le"), *shifted]


def hits(texts: Mapping[str, bytes], secrets: Iterable[str]) -> list[tuple[str, str]]:
    """Where a secret shows in any form: the name of the text, and the secret."""
    looked_for = [(secret, form) for secret in secrets for form in forms(secret)]
    return sorted(
        {(name, secret) for name, text in texts.items() for secret, form in looked_for if form in text}
    )
