"""The section `master_key`: where the key comes from that encrypts the secrets."""

from dataclasses import dataclass
from typing import Literal

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .sections import setting

VARIABLE = "GOS_MASTER_KEY"
LONGEST_SECONDS = 60


@dataclass(frozen=True)
class MasterKey:
    """The key that encrypts the secrets: 32 random bytes in base64, and beside it earlier keys while values need them."""

    source: Literal["file", "environment", "credential", "command"] = setting(
        "file",
        "file: <data>/key, made at the first start. environment: the variable GOS_MASTER_KEY. credential: a credential of systemd "
        "(LoadCredential=). command: what a command prints, such as the client of a vault.",
    )
    credential: str = setting("gos-master-key", "Name of the credential, for source: credential.")
    command: tuple[str, ...] = setting([], "The command and its arguments, for source: command; no shell is involved.")
    command_seconds: int = setting(10, "Time limit of the command. At most 60.")


def check_master_key(settings: MasterKey) -> None:
    """ConfigInvalid."""
    if settings.source == "command" and not settings.command:
        raise ConfigInvalid(
            "master_key.source is command, so master_key.command must be set, such as [vault, kv, get, -field=key, secret/gos]"
        )
    if not 1 <= settings.command_seconds <= LONGEST_SECONDS:
        raise ConfigInvalid(Sentence(
            "master_key.command_seconds is %(seconds)s; it must be from 1 to %(most)s",
            seconds=settings.command_seconds, most=LONGEST_SECONDS,
        ))
    if settings.source == "credential" and (not settings.credential or "/" in settings.credential):
        raise ConfigInvalid("master_key.credential must be the name of a credential, without slashes")
