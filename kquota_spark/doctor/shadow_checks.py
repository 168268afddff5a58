"""Whether the file of `quotas.shadow` can be read, and whether the audit judges by what it contains."""

from __future__ import annotations

from kquota_spark.checkpoints.noted_pins import shadow_in_force
from kquota_spark.checkpoints.shadow_file import canonical, shadow_name, version_of
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.pipeline.shadow.rules import ShadowPin
from kquota_spark.process.check import Check, ok, warn
from kquota_spark.quotas.any_file import quotas_of_file
from kquota_spark.store.reading import utc_text

_WHAT = "shadow"


def shadow_checks(settings: Settings) -> list[Check]:
    """The check of the shadow quotas; none if the settings have no shadow."""
    if not settings.quotas.shadow:
        return []
    try:
        pin = shadow_in_force(settings)
    except (OSError, UserError) as error:
        return [warn(_WHAT, f"the checkpoint cannot be read ({error})", "check the setting checkpoints")]
    try:
        version = version_of(canonical(quotas_of_file(settings.quotas.shadow)))
    except UserError as error:
        problem = str(error).partition("\n")[0]
        return [warn(_WHAT, f"{problem}; {_kept(pin)}", "mend the file of quotas.shadow")]
    if pin is None:
        evidence = f"{shadow_name(settings)}, version {version}: no micro-batch has judged by it yet"
        return [
            warn(_WHAT, evidence, "start the audit (kquota audit) again: it reads quotas.shadow at its start")
        ]
    if pin.version != version:
        evidence = f"the file is version {version}; {_kept(pin)}"
        return [
            warn(_WHAT, evidence, "a changed file counts from the next micro-batch: is the audit running?")
        ]
    return [ok(_WHAT, f"{pin.name}, version {pin.version}{_since(pin)}")]


def _kept(pin: ShadowPin | None) -> str:
    return "no shadow is judged" if pin is None else f"version {pin.version} is in force{_since(pin)}"


def _since(pin: ShadowPin) -> str:
    return f" since {utc_text(pin.from_ms)}" if pin.from_ms else ""
