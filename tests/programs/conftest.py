"""What several tests of programs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.programs.chromium import Chromium, chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser of the module's own."""
    with chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started
