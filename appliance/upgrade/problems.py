"""Errors of upgrades."""

from appliance.core.errors import ApplianceError


class UpgradeFailed(ApplianceError):
    """The copy of the database could not be upgraded, or is not what it has to be; or there is nothing to roll back to."""

    code, status = "upgrade_failed", 409
