"""The jar cache against the real Ivy and the real Java, with a registry that is a directory of the test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kquota_spark.embedded.setup.ivy import reason
from kquota_spark.embedded.setup.jars import IVY_XML as DECLARATION
from kquota_spark.embedded.setup.jars import cache_dir, ensure_jars, find_jars, lock_jars, main, pyspark_jars
from kquota_spark.embedded.setup.java import find_java
from kquota_spark.embedded.setup.sums import parse_sums, read_sums
from kquota_spark.errors import UserError
from tests.support.places import CONF, ROOT

IVY_XML = """\
<ivy-module version="2.0">
  <info organisation="test" module="jars"/>
  <configurations><conf name="spark"/><conf name="broker"/></configurations>
  <dependencies>
    <dependency org="org.one" name="{spark}" rev="1.0" conf="spark->default"/>
    <dependency org="org.two" name="broker-part" rev="2.0" conf="broker->default"/>
  </dependencies>
</ivy-module>
"""
SETTINGS = """\
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers>
    <filesystem name="here"><artifact pattern="{registry}/[artifact]-[revision].[ext]"/></filesystem>
  </resolvers>
</ivysettings>
"""
# sha256sum of the two jars below, and of the broker's with its last byte changed.
SPARK_SUM = "cb90e1604232ceb2130ee10cea6e19ed399a9546cea35bbf3575627232986099"
BROKER_SUM = "bef0e9955e6e26ba4765fa7b523e74b0b8df4b67bb529554bfb7bf338e0aac25"
CHANGED_SUM = "443d86ec05d17d17a230c11eb96f14aeeb413893acdf7a2f92051f11ba7ece62"
SUMS = f"{SPARK_SUM}  spark/spark-part-1.0.jar\n{BROKER_SUM}  broker/broker-part-2.0.jar\n"


@pytest.fixture
def ivy_xml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A declaration of one jar for each class path, in a registry that has both."""
    registry = tmp_path / "registry"
    registry.mkdir()
    (registry / "spark-part-1.0.jar").write_bytes(b"spark's jar")
    (registry / "broker-part-2.0.jar").write_bytes(b"the broker's jar")
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(registry=registry), encoding="utf-8")
    monkeypatch.setenv("KQUOTA_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KQUOTA_JARS", raising=False)
    path = tmp_path / "ivy.xml"
    path.write_text(IVY_XML.format(spark="spark-part"), encoding="utf-8")
    (tmp_path / "ivy.sha256").write_text(SUMS, encoding="ascii")
    return path


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks for Java from now on fails."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")


def test_jars_are_fetched_once_and_found_without_java(ivy_xml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^jars are missing: run make setup$"):
        find_jars(ivy_xml)
    jars = ensure_jars(ivy_xml)
    assert [path.name for path in jars.spark] == ["spark-part-1.0.jar"]
    assert [path.read_bytes() for path in jars.broker] == [b"the broker's jar"]
    # Nothing is left of the download, and the second use starts nothing.
    names = sorted(path.name for path in cache_dir(ivy_xml).parent.iterdir())
    assert names == [f".{cache_dir(ivy_xml).name}.lock", cache_dir(ivy_xml).name]
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert ensure_jars(ivy_xml) == find_jars(ivy_xml) == jars


@pytest.mark.parametrize(
    "damage", ["a jar is gone", "a jar is short", "no manifest", "manifest cut", "manifest is a list"]
)
def test_half_a_cache_is_not_trusted_but_repaired(ivy_xml: Path, damage: str) -> None:
    jars = ensure_jars(ivy_xml)
    manifest = cache_dir(ivy_xml) / "manifest.json"
    if damage == "a jar is gone":
        jars.spark[0].unlink()
    elif damage == "a jar is short":
        jars.spark[0].write_bytes(b"spark")
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "manifest cut":
        manifest.write_bytes(manifest.read_bytes()[:20])
    else:
        manifest.write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match="jars are missing"):
        find_jars(ivy_xml)
    assert ensure_jars(ivy_xml) == jars
    assert jars.spark[0].read_bytes() == b"spark's jar"


def test_what_a_killed_download_left_is_replaced(ivy_xml: Path) -> None:
    target = cache_dir(ivy_xml)
    partial = target.with_name(f".{target.name}.partial") / "spark"
    partial.mkdir(parents=True)
    (partial / "half-1.0.jar").write_bytes(b"ha")
    jars = ensure_jars(ivy_xml)
    assert [path.name for path in jars.spark] == ["spark-part-1.0.jar"]
    assert not partial.exists()


def test_another_declaration_never_gets_the_old_jars(ivy_xml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a directory of one's own the hash is not in the path, so only the manifest can tell.
    monkeypatch.setenv("KQUOTA_JARS", str(ivy_xml.parent / "own"))
    assert ensure_jars(ivy_xml).spark[0] == ivy_xml.parent / "own" / "spark" / "spark-part-1.0.jar"
    ivy_xml.write_text(
        IVY_XML.format(spark="broker-part").replace('rev="1.0"', 'rev="2.0"'), encoding="utf-8"
    )
    lock_jars(ivy_xml)
    with pytest.raises(UserError, match="jars are missing"):
        find_jars(ivy_xml)
    assert [path.name for path in ensure_jars(ivy_xml).spark] == ["broker-part-2.0.jar"]


def test_a_directory_with_other_files_is_left_alone(ivy_xml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = ivy_xml.parent / "home" / "spark" / "thesis.tex"
    precious.parent.mkdir(parents=True)
    precious.write_text("42", encoding="utf-8")
    monkeypatch.setenv("KQUOTA_JARS", str(ivy_xml.parent / "home"))
    with pytest.raises(UserError, match="holds other files than jars: set KQUOTA_JARS to an empty directory"):
        ensure_jars(ivy_xml)
    assert precious.read_text(encoding="utf-8") == "42"


def test_the_reason_of_ivy_is_the_error_and_nothing_is_published(ivy_xml: Path) -> None:
    ivy_xml.write_text(IVY_XML.format(spark="no-such-part"), encoding="utf-8")
    with pytest.raises(
        UserError, match=r"^the jars could not be fetched: org\.one#no-such-part;1\.0: not found: "
    ) as raised:
        ensure_jars(ivy_xml)
    assert "\n" not in str(raised.value)
    assert not cache_dir(ivy_xml).exists()


def test_a_jar_with_one_byte_changed_is_refused_in_one_line(ivy_xml: Path) -> None:
    jar = ivy_xml.parent / "registry" / "broker-part-2.0.jar"
    jar.write_bytes(b"the broker's jaR")
    with pytest.raises(UserError) as raised:
        ensure_jars(ivy_xml)
    assert str(raised.value) == (
        f"broker/broker-part-2.0.jar: fetched {CHANGED_SUM}, and "
        f"{ivy_xml.with_suffix('.sha256')} lists {BROKER_SUM}: "
        "nothing was kept: check the registry or its mirror, and run it again"
    )
    # Neither the jars nor Ivy's cache of them: when the registry is mended, the next attempt is a good one.
    assert [path.name for path in cache_dir(ivy_xml).parent.iterdir()] == [f".{cache_dir(ivy_xml).name}.lock"]
    jar.write_bytes(b"the broker's jar")
    assert [path.read_bytes() for path in ensure_jars(ivy_xml).broker] == [b"the broker's jar"]


@pytest.mark.parametrize(
    ("sums", "reason"),
    [
        (SUMS.splitlines()[1], f"spark/spark-part-1.0.jar: fetched {SPARK_SUM}, and .* lists no such jar: "),
        (f"{SUMS}{'0' * 64}  spark/more-1.0.jar", "spark/more-1.0.jar: fetched no such jar, and .* lists 000"),
        (f"{SUMS}# 2 jars", r"ivy\.sha256:3: not a SHA-256 and a jar: write it with python -m .* --lock .*ivy.xml$"),
        (None, r"ivy\.sha256: cannot be read \(No such file or directory\): it lists the SHA-256 of each jar: "),
    ],
    ids=["one more jar", "one jar less", "a line of another form", "no list"],
)  # fmt: skip
def test_only_the_listed_jars_are_taken(ivy_xml: Path, sums: str | None, reason: str) -> None:
    path = ivy_xml.with_suffix(".sha256")
    path.unlink() if sums is None else path.write_text(sums, encoding="ascii")
    with pytest.raises(UserError, match=reason):
        ensure_jars(ivy_xml)


def test_a_changed_list_never_gets_the_old_jars(ivy_xml: Path) -> None:
    ensure_jars(ivy_xml)
    ivy_xml.with_suffix(".sha256").write_text(
        SUMS.replace(BROKER_SUM, "0" * 64),
        encoding="ascii",
    )
    with pytest.raises(UserError, match="jars are missing"):
        find_jars(ivy_xml)
    with pytest.raises(
        UserError,
        match=rf"broker-part-2\.0\.jar: fetched {BROKER_SUM}, and ",
    ):
        ensure_jars(ivy_xml)


def test_the_list_of_a_new_declaration_is_written_by_the_command(
    ivy_xml: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ivy_xml.with_suffix(".sha256")
    path.unlink()
    assert main(["--lock", str(ivy_xml)]) == 0
    assert capsys.readouterr().out == f"jars: their SHA-256 are in {path}\n"
    assert path.read_text(encoding="ascii") == SUMS


DECLARATIONS = sorted([*CONF.glob("ivy*.xml"), *(ROOT / "tests").glob("*/ivy*.xml")])
_REVISION = re.compile(r'<dependency org="[\w.]+" name="([\w.-]+)" rev="([\w.]+)" conf="(\w+)->')


@pytest.mark.parametrize("declaration", DECLARATIONS, ids=[path.stem for path in DECLARATIONS])
def test_every_declaration_has_a_list_with_the_jars_that_it_names(declaration: Path) -> None:
    listed = parse_sums(read_sums(declaration), declaration)
    named = _REVISION.findall(declaration.read_text(encoding="utf-8"))
    assert named
    for name, revision, conf in named:
        assert any(jar.startswith(f"{conf}/{name}-{revision}") for jar in listed), f"{name} {revision}"


def test_a_network_error_wins_over_the_modules_that_were_not_found_for_it() -> None:
    # Cut from what Ivy 2.5.3 printed behind a proxy that refused.
    lines = [
        ":: problems summary ::",
        ":: io.delta#delta-spark_4.2_2.13;4.4.0: not found",
        "",
        ":::: ERRORS",
        "HttpClientHandler: Connect to 127.0.0.1:9 [/127.0.0.1] failed: Connection refused url=x",
    ]
    assert reason(lines) == "Connect to 127.0.0.1:9 [/127.0.0.1] failed: Connection refused url=x"


@pytest.mark.usefixtures("no_java")
def test_without_java_the_error_says_how_to_get_it(ivy_xml: Path) -> None:
    with pytest.raises(UserError) as raised:
        ensure_jars(ivy_xml)
    assert str(raised.value) == (
        "Java 17 or 21 is needed and was not found (JAVA_HOME is /nowhere): "
        "install it, e.g. apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    )


@pytest.mark.parametrize(
    ("version", "is_good"),
    [
        ("1.8.0_392", False),
        ("11.0.2", False),
        ("17.0.15", True),
        ("21", True),
        ("22.0.1", False),
        ("25-ea", False),
    ],
)
def test_java_17_to_21_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_good: bool
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    # An option from the environment is announced before the version.
    said = f'Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "{version}"\n'
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}END\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if is_good:
        assert (find_java().path, find_java().version) == (java, version)
    else:
        with pytest.raises(UserError, match=f"^Java 17 or 21 is needed and .*/bin/java is Java {version} "):
            find_java()


def test_the_command_prints_one_line_and_does_not_import_pyspark(ivy_xml: Path) -> None:
    script = (
        "import sys; from kquota_spark.embedded.setup.jars import main; code = main(sys.argv[1:]);"
        "assert 'pyspark' not in sys.modules; sys.exit(code)"
    )
    good = subprocess.run(
        [sys.executable, "-c", script, str(ivy_xml)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (good.returncode, good.stdout) == (
        0,
        f"jars: 1 for Spark, 1 for the brokers in {cache_dir(ivy_xml)}\n",
    )
    bad = subprocess.run(
        [sys.executable, "-c", script, "no.xml"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr.startswith("kquota: no.xml: cannot be read (No such file or directory)")


def test_with_ivy_at_hand_the_jars_are_fetched_before_any_package_is_installed(ivy_xml: Path) -> None:
    command = ("-S", "-m", "kquota_spark.embedded.setup.jars", "--ivy", str(pyspark_jars()), str(ivy_xml))
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (
        0,
        f"jars: 1 for Spark, 1 for the brokers in {cache_dir(ivy_xml)}\n",
    )


def test_the_declarations_of_the_checkout_are_those_of_the_package() -> None:
    assert DECLARATION.is_relative_to(ROOT / "kquota_spark") and DECLARATION.samefile(
        ROOT / "conf" / "ivy.xml"
    )
