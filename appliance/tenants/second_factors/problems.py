"""What a person is told when a proof is refused."""

from appliance.core.errors import ApplianceError


class FactorRefused(ApplianceError):
    """The code or the passkey does not prove who it is."""

    code, status = "factor_refused", 401


class ProofExpired(ApplianceError):
    """The page was open for too long, or was used already; a fresh one works."""

    code, status = "proof_expired", 400
