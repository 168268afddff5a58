"""The units of `formats.person_units` under the name that commands know."""

from __future__ import annotations

from kquota_spark.formats.person_units import amount_text, broker_text, rate_text, type_text

__all__ = ["amount_text", "broker_text", "rate_text", "type_text"]
