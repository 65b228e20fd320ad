"""The identity of this installation, by which it owns a bucket and its backups."""

from contextlib import suppress

from appliance.core.config import Config
from appliance.core.crypto import Sealer, has_keys, load_keys

INSTALLATION = "installation"


def installation_id(sealer: Sealer) -> str:
    """The id of this installation, derived from its first master key: the same on other machines and after a restore."""
    return f"ins_{sealer.digest(b'installation').hex()[:24]}"


def read_installation(config: Config) -> str:
    """The id of the installation of this data folder, without its database; empty without any key, none of which is made here."""
    with suppress(FileNotFoundError):
        return (config.data / INSTALLATION).read_text("ascii").strip()
    return installation_id(Sealer(load_keys(config)[0])) if has_keys(config) else ""


def note_installation(config: Config, sealer: Sealer) -> None:
    """Keep the id in a file of the data folder, if it is not that of the only key of the key file: that key may be retired."""
    path, own = config.data / INSTALLATION, installation_id(sealer)
    needs_file = path.exists() or config.master_key.source != "file" or len(sealer.key_ids) > 1
    if read_installation(config) == own and (path.exists() or not needs_file):
        return
    draft = path.with_name(f"{INSTALLATION}.new")
    draft.write_text(f"{own}\n", "ascii")
    draft.replace(path)
