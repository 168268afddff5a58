"""The wheel in an empty environment, far from the checkout: the commands work, and say what their extra brings."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from tests.support.places import CONF, ROOT

pytestmark = pytest.mark.timeout(600)


class Installed:
    """An environment with the wheel alone, and an empty directory to work in."""

    def __init__(self, root: Path) -> None:
        self.bin, self.work = root / "env" / "bin", root / "work"
        self.work.mkdir()
        # Nothing of the tests' own environment.
        self._variables = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}

    def run(self, program: str, *arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.work, env=self._variables, capture_output=True, text=True, check=False, timeout=170,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Built and installed as a user would, with all that the wheel requires."""
    root = tmp_path_factory.mktemp("wheel")
    build = ("wheel", "--quiet", "--no-deps", "--wheel-dir", str(root), str(ROOT))
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, timeout=120)
    [wheel] = root.glob("kquota_spark-*.whl")
    began_s = time.monotonic()
    venv.create(root / "env", with_pip=True)
    environment = Installed(root)
    # Compiling all modules of all packages would take half of the time, and a few are imported here.
    install = ("install", "--quiet", "--disable-pip-version-check", "--no-compile", str(wheel))
    assert environment.run("python", "-m", "pip", *install) == (0, "", "")
    code, _, _ = environment.run("kquota", "replay", "--sample")
    assert code == 0
    print(f"from pip install to the verdicts of the sample: {time.monotonic() - began_s:.0f} s")
    return environment


def test_the_sample_is_judged_from_the_wheel(installed: Installed) -> None:
    code, out, err = installed.run("kquota", "replay", "--sample")
    assert (code, err) == (0, "")
    assert out.startswith("5,000 lines, 0 unreadable, 4,847 counted\n")


@pytest.mark.parametrize("command", ["audit", "demo"])
def test_without_the_extra_commands_of_spark_say_how_to_get_it(installed: Installed, command: str) -> None:
    said = (
        f"{command} needs Spark: in a checkout pip install '.[spark]', "
        "else pip install 'WHEEL[spark]' with the wheel's path"
    )
    code, out, err = installed.run("kquota", command)
    assert (code, out, err.splitlines()) == (1, "", [f"{'demo' if command == 'demo' else 'kquota'}: {said}"])
    assert [*installed.work.iterdir()] == []


def test_the_wheel_has_every_file_of_conf(installed: Installed) -> None:
    code, out, _ = installed.run("python", "-c", "import kquota_spark; print(kquota_spark.__path__[0])")
    assert code == 0

    def files(folder: Path) -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    assert files(CONF) and files(Path(out.strip()) / "conf") == files(CONF)
