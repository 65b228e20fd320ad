"""The logins that trusted proxies send: taken out of every request, and noted for the console if the connection is the proxy's."""

from collections.abc import Sequence

from appliance.core.config.trusted_headers import TrustedHeader
from appliance.tenants.single_sign_on import ProxyLogin
from appliance.web import PROXY_LOGIN, Scope

from .networks import Networks


class ProxyLogins:
    """Reads the headers of `sign_in.trusted_headers`.  Nothing behind the front sees one of them."""

    def __init__(self, trusted: Sequence[TrustedHeader]) -> None:
        self._trusted = [(each, Networks(each.proxies)) for each in trusted]
        self._names = frozenset(name.encode() for each in trusted for name in each.headers)

    def take(self, scope: Scope, headers: dict[bytes, bytes], peer: str) -> None:
        """Remove the headers; note what a proxy has sent.  `peer` is whose connection it is, whatever other headers say."""
        if not self._names:
            return
        sent = [(name, value) for name, value in scope["headers"] if name.lower() in self._names]
        if not sent:
            return
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name.lower() not in self._names]
        for name, _ in sent:
            headers.pop(name, None)
        values: dict[str, list[str]] = {}
        for name, value in sent:
            values.setdefault(name.lower().decode("ascii"), []).append(value.decode("utf-8", "replace").strip())
        for trusted, networks in self._trusted:
            if peer in networks and (login := _read(trusted, values)) is not None:
                scope[PROXY_LOGIN] = login
                return


def _read(trusted: TrustedHeader, values: dict[str, list[str]]) -> ProxyLogin | None:
    """What the proxy says about somebody; None if it says nothing.  Of a header that it sends twice, no value counts."""

    def single(name: str) -> str:
        return values.get(name.lower(), [""])[0] if name else ""

    if not any(values.get(trusted.header.lower(), [])):
        return None
    groups = single(trusted.groups_header).split(trusted.groups_separator)
    return ProxyLogin(
        proxy=trusted.id, user=single(trusted.header), login=single(trusted.login_header or trusted.header),
        groups=frozenset(each.strip() for each in groups if each.strip()),
        is_ambiguous=any(len(values.get(name, [])) > 1 for name in trusted.headers),
    )  # fmt: skip
