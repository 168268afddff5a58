"""The version of the tables' schema, which each table carries as a property.

A release adds columns, nullable ones; it never renames or retypes one. So tables of an older release are extended
when the job starts, and those of a newer one are refused.
"""

from __future__ import annotations

SCHEMA_VERSION = 2
"""Raised by a release that adds columns. Tables of 0.1 carry no version and count as 1."""

STATE_FORM = 8
"""Form of the state of the query of the log: another form cannot be read. Releases with a query for each table had 1
to 5."""

VERSION_PROPERTY = "kquota.schema.version"
