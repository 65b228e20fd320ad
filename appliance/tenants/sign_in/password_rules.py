"""What a new password must be like, by NIST SP 800-63B-4: long, and not easy to guess.  Existing passwords are not checked.

There are no rules of composition, and passwords do not expire.  Lists of common passwords have hardly any with 15 characters, so
the password is not only looked up as a whole: zxcvbn estimates how many guesses it takes from common passwords, words and names,
repetitions, sequences and keyboard patterns, also with usual replacements of letters (https://www.usenix.org/system/files/
conference/usenixsecurity16/sec16_paper_wheeler.pdf).
"""

from dataclasses import dataclass
from typing import Protocol

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence

MIN_LENGTH, MAX_LENGTH = 15, 1000  # characters; 15 because the password is the only factor
_FEWEST_GUESSES = 10**10
_ESTIMATED_LENGTH = 72  # characters of which the guesses are estimated: that takes longer than proportionally
_PRODUCT = ("governed operations service", "governed-operations-service", "governedoperationsservice", "gos", "gos appliance")


class BreachedPasswords(Protocol):
    """A list of passwords known from breaches."""

    def is_known(self, password: str) -> bool: ...


@dataclass
class _Compared:
    """The list that new passwords are compared with; None without one."""

    breached: BreachedPasswords | None = None


_compared = _Compared()


def set_breached_passwords(breached: BreachedPasswords | None) -> None:
    """Set the list that new passwords are compared with, for this process."""
    _compared.breached = breached


def check_new_password(login: str, password: str) -> None:
    """ValidationFailed unless the password may be chosen for this login; BreachListUnavailable if that cannot be found out."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise ValidationFailed(
            Sentence(
                "a password must have %(least)s to %(most)s characters; a sentence works well", least=MIN_LENGTH, most=MAX_LENGTH
            ),
            pointer="/password",
        )
    if _count_guesses(login, password) < _FEWEST_GUESSES:
        raise ValidationFailed(
            "this password is too easy to guess: it consists of common words, your login, the product's name, repetitions or "
            "sequences; choose several words that do not belong together",
            pointer="/password",
        )
    if _compared.breached is not None and _compared.breached.is_known(password):
        raise ValidationFailed(
            "this password is known from a data breach, so attackers try it; choose another one, which you use nowhere else",
            pointer="/password",
        )


def _count_guesses(login: str, password: str) -> int:
    """The estimated number of guesses to find the password for somebody who knows the login."""
    from zxcvbn import zxcvbn  # its lists are loaded when a password is chosen, which is rare

    local, _, domain = login.partition("@")
    known = {login, local, domain, domain.partition(".")[0], *_PRODUCT} - {""}
    return int(zxcvbn(password[:_ESTIMATED_LENGTH], user_inputs=sorted(known))["guesses"])
