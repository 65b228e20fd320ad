"""Who opens a WebApp."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Visitor:
    """Whoever sends a request to a WebApp; `id` and `email` are known of members and of users who have signed in.

    `session` names the visit of one browser, so that limits can be kept per session; it is never the cookie itself.  `roles`
    are those of a member in the tenant as things stand now; nobody else has any, whatever they are called.
    """

    kind: Literal["anonymous", "password", "member", "user"] = "anonymous"
    id: str = ""
    email: str = ""
    session: str = ""
    roles: tuple[str, ...] = ()


ANONYMOUS = Visitor()
