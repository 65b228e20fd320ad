"""The section `passwords`: how long temporary ones last, and what new ones are compared with."""

from dataclasses import dataclass
from pathlib import Path

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence
from appliance.core.targets import is_issuer

from .sections import setting

LONGEST_TEMPORARY_DAYS = 30


@dataclass(frozen=True)
class Passwords:
    """Passwords of accounts."""

    temporary_days: int = setting(
        7, "How many days a temporary password (gos init, gos user add, gos user password without --lasting) may wait for the "
        "first sign-in, which replaces it; from 1 to 30."
    )
    breaches: str = setting(
        "",
        "The list of passwords known from breaches (SHA-1) that new ones must not be in: the absolute path of a folder with a file "
        "for each range or of one sorted file, or the https:// URL of a service with ranges, such as your own mirror. Empty: none. "
        "docs/accounts.md says more.",
    )


def check_passwords(section: Passwords) -> None:
    """ConfigInvalid names the setting and the problem."""
    if not 1 <= section.temporary_days <= LONGEST_TEMPORARY_DAYS:
        raise ConfigInvalid(Sentence(
            "passwords.temporary_days is %(days)s; it must be from 1 to %(most)s",
            days=section.temporary_days, most=LONGEST_TEMPORARY_DAYS,
        ))
    if section.breaches and not (Path(section.breaches).is_absolute() or is_issuer(section.breaches)):
        raise ConfigInvalid(
            "passwords.breaches must be an absolute path, or an https:// URL without a query; five hexadecimal digits are added"
        )
