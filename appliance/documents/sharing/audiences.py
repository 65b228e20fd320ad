"""The audience of a share: named people, who prove by a code that an e-mail address is their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core import ids
from appliance.core.errors import ValidationFailed
from appliance.tenants.sign_in import check_listed, is_listed

POINTER = "/audience"
MOST_TOLD = 20


@dataclass(frozen=True)
class Audience:
    """Who may fetch: `allow` are e-mail addresses and `*@domain`; the integration's action `send` brings them their codes."""

    integration: str
    allow: tuple[str, ...]

    def allows(self, email: str) -> bool:
        """Whether this address is among the audience."""
        return is_listed(email, self.allow)


@dataclass(frozen=True)
class AudienceChange:
    """What is to be another from now on; None stays."""

    integration: str | None = None
    allow: Sequence[str] | None = None

    def applied(self, before: Audience | None) -> Audience:
        """The audience after the change; ValidationFailed with the place."""
        integration = before.integration if self.integration is None and before is not None else self.integration
        allow = before.allow if self.allow is None and before is not None else self.allow
        if integration is None:
            raise ValidationFailed("name the integration that sends the e-mails", pointer=f"{POINTER}/integration")
        slug = ids.check_slug(integration, pointer=f"{POINTER}/integration")
        return Audience(slug, check_listed(allow or (), f"{POINTER}/allow"))


def stored(audience: Audience | None) -> dict[str, Any] | None:
    """An audience as a row keeps it."""
    return None if audience is None else {"integration": audience.integration, "allow": list(audience.allow)}


def read_stored(kept: Mapping[str, Any] | None) -> Audience | None:
    """A kept audience again."""
    return None if kept is None else Audience(kept["integration"], tuple(kept["allow"]))


def told(audience: Audience | None) -> dict[str, Any]:
    """What the audit trail says of it: the first names, and how many there are."""
    return {} if audience is None else {"audience": list(audience.allow[:MOST_TOLD]), "audience_size": len(audience.allow)}
