"""The version of the tables' schema, which each table carries as a property.

A release adds columns, nullable ones; it never renames or retypes one. So tables of an older release are extended
when the job starts, and those of a newer one are refused.
"""

from __future__ import annotations

SCHEMA_VERSION = 2
"""Raised by a release that adds columns. Tables of 0.1 carry no version and count as 1."""

STATE_FORMS = {"measure": 2, "judge": 5}
"""Form of the state of a query, where it has one: another form cannot be read. 1 in release 0.1."""

VERSION_PROPERTY = "kquota.schema.version"
