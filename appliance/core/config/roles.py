"""What every source of people in `sign_in` has: a short name, and roles that its groups give in tenants."""

import re
from dataclasses import dataclass
from typing import Literal

from .sections import required, setting

ID = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")

LINKS = (
    "Whether an account that exists already, or a future administrator, belongs to whoever signs in here with that login. "
    "Set login only if you trust the source with every account. none: that is refused."
)
UNKNOWN = "Whether people may sign in who have no role in any tenant; false: they are refused, and get no account."


@dataclass(frozen=True)
class GroupRole:
    """The role that the members of a group have in a tenant."""

    group: str = required("A value of the groups claim or header, the DN of a group of the directory, or with scim a displayName.")
    tenant: str = required("The id of the tenant.")
    role: Literal["owner", "builder", "operator", "viewer"] = required("The role.")
    approver: bool = setting(False, "Whether they may also decide approvals.")
