"""The visitor of a WebApp."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Visitor:
    """The sender of a request to a WebApp; `id` and `email` are set for members and signed-in users only.

    `session` identifies one browser session for rate limits; it is never the cookie value itself. `roles` are the current
    tenant roles of a member, and empty for everyone else.
    """

    kind: Literal["anonymous", "password", "member", "user"] = "anonymous"
    id: str = ""
    email: str = ""
    session: str = ""
    roles: tuple[str, ...] = ()


ANONYMOUS = Visitor()
