"""The policy file as a person's command changes it: checked before and after, and replaced in one step."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from kquota_spark.enforcement.policies import load_policies
from kquota_spark.errors import UserError


def edit_policy_file(path: Path, edit: Callable[[str], str]) -> bool:
    """Replace the text of a policy file; a running enforcer reads either the old or the new one.

    Returns:
        Whether anything changed.

    Raises:
        UserError: the file is not valid, before or after, or cannot be written.
    """
    load_policies(path)
    before = path.read_bytes().decode()  # as it is, ends of lines included
    try:
        after = edit(before)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    if after == before:
        return False
    target = path.resolve()  # a link stays a link
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        new = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(after.encode())
                file.flush()
                os.fsync(file.fileno())
            new.chmod(target.stat().st_mode & 0o777)
            load_policies(new)
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written: {error.strerror}: edit it where it comes from"
        ) from error
    return True
