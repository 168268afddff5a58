"""The escapes of `formats.escape` under the name that commands know."""

from __future__ import annotations

from kquota_spark.formats.escape import (
    csv_text,
    cut,
    encodable_json,
    harmless_json,
    json_text,
    terminal_text,
    width,
)

__all__ = ["csv_text", "cut", "encodable_json", "harmless_json", "json_text", "terminal_text", "width"]
