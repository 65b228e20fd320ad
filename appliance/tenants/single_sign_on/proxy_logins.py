"""What a proxy says about who has sent a request."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ProxyLogin:
    """Somebody whom the proxy has signed in.  `is_ambiguous` if one of its headers came twice, so that nobody knows who it is."""

    proxy: str
    user: str
    login: str
    groups: frozenset[str]
    is_ambiguous: bool = False

    @property
    def subject(self) -> str:
        """What identifies the person at the proxy, in upper or lower case."""
        return self.user.lower()
