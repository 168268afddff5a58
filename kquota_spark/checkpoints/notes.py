"""Small files beside the checkpoints: each is always whole, old or new, also after a crash or on a full disk."""

from __future__ import annotations

from kquota_spark.config.roots import local_path
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError, one_line
from kquota_spark.process.replaced_file import write_whole
from kquota_spark.store.storage import file_system


def write_note(settings: Settings, path: str, data: bytes) -> None:
    """Replace a note, and create its folder if it is missing.

    Raises:
        UserError: it cannot be written; the old note is unchanged.
    """
    try:
        put_whole(settings, path, data)
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise UserError(
            f"{path}: cannot be written: {reason}: mend that and start again, which continues where this one ended"
        ) from error


def put_whole(settings: Settings, path: str, data: bytes) -> None:
    """Replace a file as a whole, local or in an object store, and create its folder if it is missing.

    Raises:
        OSError: it cannot be written; the old file is unchanged.
    """
    local = local_path(path)
    if local is None:
        # An object appears only when it has been written completely.
        files, place = file_system(settings, path)
        with files.open_output_stream(place) as stream:
            stream.write(data)
    else:
        local.parent.mkdir(parents=True, exist_ok=True)
        write_whole(local, data)


def read_note(settings: Settings, path: str) -> bytes | None:
    """The content of a note; None if it does not exist.

    Raises:
        UserError: it cannot be read.
    """
    try:
        files, place = file_system(settings, path)
        with files.open_input_stream(place) as stream:
            found: bytes = stream.read()
            return found
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {one_line(error)}") from error
