"""Renders the sign-in pages: plain HTML that may load and run nothing."""

from pathlib import Path

from appliance.sites.front.readers import Readers
from appliance.sites.webapps.pages import VARYING, SitePages, policy_of

from .visiting import SIGN_IN_COOKIE, SIGN_IN_MS, Page, Redirect, SignInRequest

Headers = list[tuple[bytes, bytes]]
VISIT_SECONDS = 7 * 86_400


class SignInPages:
    """Renders the templates of a folder; the content security policy allows only their inline style, by its digest."""

    def __init__(self, templates: Path, readers: Readers) -> None:
        self.readers = readers
        self._pages = SitePages(templates, readers.languages)

    def render(self, response: Page | Redirect, request: SignInRequest) -> tuple[int, bytes, Headers]:
        """Status, body and headers of the response to `request`."""
        cookies: Headers = [(b"set-cookie", _cookie(name, value)) for name, value in response.cookies.items()]
        if isinstance(response, Redirect):
            return 303, b"", [(b"location", response.url.encode("latin1", "replace")), *_SAFE, *cookies]
        values = {"host": request.place.host, **response.values}
        html = self._pages.html(response.template, values, request.http.headers.get("accept-language", ""))
        headers = [(name.lower().encode(), value.encode("latin1", "replace")) for name, value in response.headers.items()]
        policy = (b"content-security-policy", policy_of(html).encode())
        own = ((b"content-type", b"text/html; charset=utf-8"), policy, VARYING)
        return response.status, html.encode(), [*own, *_SAFE, *cookies, *headers]


_SAFE: Headers = [
    (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"), (b"cross-origin-opener-policy", b"same-origin"), (b"x-robots-tag", b"noindex"),
]  # fmt: skip


def _cookie(name: str, value: str) -> bytes:
    seconds = 0 if not value else SIGN_IN_MS // 1000 if name == SIGN_IN_COOKIE else VISIT_SECONDS
    return f"{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax".encode()
