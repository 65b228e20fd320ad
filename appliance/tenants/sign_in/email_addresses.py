"""E-mail addresses, and allowlists of addresses."""

import re
from collections.abc import Sequence

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence

MAX_LISTED = 500
_LABEL = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_EMAIL = re.compile(rf"[a-z0-9.!#$%&'+/=?^_`{{|}}~-]{{1,64}}@(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})+")


def parse_email(text: str) -> str:
    """A normalized e-mail address; empty if the text is not one."""
    lower = text.strip().lower()
    return lower if len(lower) <= 254 and _EMAIL.fullmatch(lower) else ""


def is_listed(email: str, listed: Sequence[str]) -> bool:
    """Whether an address is on the list, which contains addresses, and `*@domain` for every address of a domain."""
    email = email.lower()
    # Every entry is compared even after a match, so that the time reveals nothing about the list.
    matches = [email == entry or _is_of_domain(email, entry) for entry in listed]
    return bool(email) and any(matches)


def _is_of_domain(email: str, entry: str) -> bool:
    local, _, domain = email.rpartition("@")
    return entry.startswith("*@") and bool(local) and domain == entry[2:]


def validate_allowlist(entries: Sequence[str], pointer: str, *others: str) -> tuple[str, ...]:
    """Normalize an allowlist; entries in `others` are valid as they are.  ValidationFailed points at the wrong entry."""
    addresses = tuple(entry.strip().lower() for entry in entries)
    if not 1 <= len(addresses) <= MAX_LISTED:
        message = Sentence(
            "list who may sign in: 1 to %(most_listed)s addresses such as a@b.example, or *@b.example", most_listed=MAX_LISTED
        )
        raise ValidationFailed(message, pointer=pointer)
    for number, entry in enumerate(addresses):
        if not (parse_email(entry.replace("*@", "a@", 1) if entry.startswith("*@") else entry) or entry in others):
            raise ValidationFailed(
                Sentence("%(entry)s is neither an address nor *@domain", entry=repr(entry[:80])), pointer=f"{pointer}/{number}"
            )
    return addresses
