"""Errors of every program: one line for an error of the user or the machine, a traceback for a bug of kquota."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable

from kquota_spark.cli.exit_codes import ERROR
from kquota_spark.errors import UserError, one_line
from kquota_spark.formats.text.escape import terminal_text

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_OF_RUST = re.compile(r"\(os error (\d+)\)")
_OF_JAVA = {"No space left on device": errno.ENOSPC, "Permission denied": errno.EACCES}
_LIBRARIES = (
    ("deltalake.exceptions", "DeltaError"),
    ("pyspark.errors", "PySparkException"),
    ("py4j.protocol", "Py4JJavaError"),
)
"""Modules and base classes of the libraries' errors. Only a program that imports a library can have its errors."""
_OURS = (TypeError, ValueError, AttributeError, LookupError, AssertionError, NotImplementedError)
"""Errors that mean a bug; libraries raise them for wrong calls."""


def through_the_door(program: str, run: Callable[[], int]) -> int:
    """Run a program and print errors of the user or the machine on standard error.

    Args:
        program: the name before each line.
        run: returns the exit code.

    Returns:
        The exit code of `run`; `ERROR` after a printed error.
    """
    try:
        return run()
    except BrokenPipeError:
        raise  # standard output was closed: the caller knows what it was writing
    except Exception as error:
        text = line_of(error)
        if text is None:
            raise
        # Line feeds separate the problems of a quota file. All other characters may come from names that users chose.
        for line in text.split("\n"):
            print(f"{program}: {terminal_text(line)}", file=sys.stderr)
        return ERROR


def line_of(error: Exception) -> str | None:
    """The message for an error of the user or the machine; None for a bug of kquota."""
    from kquota_spark.model.quotas.quota_callback import CallbackError

    if isinstance(error, UserError | CallbackError):
        return str(error)
    if isinstance(error, OSError):
        return _of_machine(error)
    if not _is_of_library(error):
        return None
    reason = _reason(error)
    return reason + _advice(_number_in(reason))


def _of_machine(error: OSError) -> str:
    if error.errno is None:  # raised by the Delta library or by Arrow
        return one_line(error) + _advice(_number_in(one_line(error)))
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror}{_advice(error.errno)}"


def _is_of_library(error: Exception) -> bool:
    """Whether a library could not do what it was asked. Columns that differ from the schema are a bug of kquota."""
    if isinstance(error, _OURS) or type(error).__name__ in ("SchemaMismatchError", "AnalysisException"):
        return False
    found = (getattr(sys.modules.get(module), name, None) for module, name in _LIBRARIES)
    return isinstance(error, tuple(kind for kind in found if isinstance(kind, type)))


def _reason(error: Exception) -> str:
    if type(error).__module__.startswith(("pyspark", "py4j")):
        from kquota_spark.audit.progress import reason_of

        return reason_of(str(error))
    return one_line(error)


def _number_in(reason: str) -> int | None:
    if found := _OF_RUST.search(reason):
        return int(found.group(1))
    return next((number for text, number in _OF_JAVA.items() if text in reason), None)


def _advice(number: int | None) -> str:
    if number in _FULL:
        return ": free space there, then start again: what was committed is whole"
    return ": give this program the right to use it, then start again" if number in _REFUSED else ""
