"""The section `passwords`: how long temporary ones last."""

from dataclasses import dataclass

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .sections import setting

LONGEST_TEMPORARY_DAYS = 30


@dataclass(frozen=True)
class Passwords:
    """Passwords of accounts."""

    temporary_days: int = setting(
        7, "How many days a password that the appliance makes up (gos init, gos user add, gos user password --generate) may wait "
        "for the first sign-in, which replaces it; from 1 to 30."
    )


def check_passwords(section: Passwords) -> None:
    """ConfigInvalid names the setting and the problem."""
    if not 1 <= section.temporary_days <= LONGEST_TEMPORARY_DAYS:
        raise ConfigInvalid(Sentence(
            "passwords.temporary_days is %(days)s; it must be from 1 to %(most)s",
            days=section.temporary_days, most=LONGEST_TEMPORARY_DAYS,
        ))
