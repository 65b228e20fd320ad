"""The pages of the sign-in as answers: plain HTML that asks for nothing else and may run nothing."""

import base64
import hashlib
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .visiting import ASK_COOKIE, ASK_MS, Asked, Page, Redirect

Headers = list[tuple[bytes, bytes]]
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
VISIT_SECONDS = 7 * 86_400


class SignInPages:
    """Renders the templates of a folder; their one style is in them, and the policy names it by its digest."""

    def __init__(self, templates: Path) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(str(templates)), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip
        self._environment.filters["sentence"] = lambda text: f"{text[:1].upper()}{text[1:]}."

    def render(self, shown: Page | Redirect, asked: Asked) -> tuple[int, bytes, Headers]:
        """Status, body and headers of an answer to `asked`."""
        cookies: Headers = [(b"set-cookie", _cookie(name, value)) for name, value in shown.cookies.items()]
        if isinstance(shown, Redirect):
            return 303, b"", [(b"location", shown.url.encode("latin1", "replace")), *_SAFE, *cookies]
        values = {"host": asked.place.host, **shown.values}
        html = self._environment.get_template(shown.template).render(values)
        headers = [(name.lower().encode(), value.encode("latin1", "replace")) for name, value in shown.headers.items()]
        policy = (b"content-security-policy", _policy(html).encode())
        return shown.status, html.encode(), [(b"content-type", b"text/html; charset=utf-8"), policy, *_SAFE, *cookies, *headers]


_SAFE: Headers = [
    (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"), (b"cross-origin-opener-policy", b"same-origin"), (b"x-robots-tag", b"noindex"),
]  # fmt: skip


def _policy(html: str) -> str:
    style = _STYLE.search(html)
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() if style else ""
    allowed = f"style-src 'sha256-{digest}'; " if style else ""
    return f"default-src 'none'; {allowed}form-action 'self'; base-uri 'none'; frame-ancestors 'none'"


def _cookie(name: str, value: str) -> bytes:
    seconds = 0 if not value else ASK_MS // 1000 if name == ASK_COOKIE else VISIT_SECONDS
    return f"{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax".encode()
