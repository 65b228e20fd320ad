"""What identity providers, directories and proxies have in common: people with roles by their groups."""

from typing import Protocol

from appliance.core.config.roles import GroupRole


class Source(Protocol):
    """A source of people in the configuration, as accounts and memberships see it.

    Identities are stored with its `issuer`, memberships with its `id`.  Unless `link_by` is none, it is trusted with accounts that
    exist already.  With `scim`, it adds people itself.
    """

    @property
    def id(self) -> str: ...

    @property
    def issuer(self) -> str: ...

    @property
    def roles(self) -> tuple[GroupRole, ...]: ...

    @property
    def link_by(self) -> str: ...

    @property
    def allow_unknown(self) -> bool: ...

    @property
    def scim(self) -> bool: ...
