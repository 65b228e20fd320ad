"""The identity of this installation, by which it owns a bucket and its backups."""

from appliance.core.crypto import Sealer


def installation_id(sealer: Sealer) -> str:
    """The id of this installation, derived from its key file: the same on other machines and after a restore."""
    return f"ins_{sealer.digest(b'installation').hex()[:24]}"
