"""The audience of a share: people who prove an e-mail address with a one-time code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core import ids
from appliance.core.errors import ValidationFailed
from appliance.tenants.sign_in import is_listed, validate_allowlist

POINTER = "/audience"
MAX_LISTED = 20


@dataclass(frozen=True)
class Audience:
    """Who may open a share: `allow` lists e-mail addresses and `*@domain` patterns; codes are sent with the action `send` of
    the integration."""

    integration: str
    allow: tuple[str, ...]

    def allows(self, email: str) -> bool:
        """Whether this address belongs to the audience."""
        return is_listed(email, self.allow)


@dataclass(frozen=True)
class AudienceChange:
    """Changes to an audience; None keeps the current value."""

    integration: str | None = None
    allow: Sequence[str] | None = None

    def applied(self, current: Audience | None) -> Audience:
        """The audience after the change; ValidationFailed with a pointer."""
        integration = current.integration if self.integration is None and current is not None else self.integration
        allow = current.allow if self.allow is None and current is not None else self.allow
        if integration is None:
            raise ValidationFailed("choose the integration that sends the e-mails", pointer=f"{POINTER}/integration")
        slug = ids.check_slug(integration, pointer=f"{POINTER}/integration")
        return Audience(slug, validate_allowlist(allow or (), f"{POINTER}/allow"))


def to_json(audience: Audience | None) -> dict[str, Any] | None:
    """The JSON stored in the row."""
    return None if audience is None else {"integration": audience.integration, "allow": list(audience.allow)}


def from_json(stored_audience: Mapping[str, Any] | None) -> Audience | None:
    """The audience of stored JSON."""
    return None if stored_audience is None else Audience(stored_audience["integration"], tuple(stored_audience["allow"]))


def audit_data(audience: Audience | None) -> dict[str, Any]:
    """The audit trail's data about the audience: the first addresses, and how many there are."""
    return {} if audience is None else {"audience": list(audience.allow[:MAX_LISTED]), "audience_size": len(audience.allow)}
