"""The pages of a share: the download page, the password page, and the page for invalid links."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appliance.sites.front.readers import Readers
from appliance.sites.webapps.pages import VARYING, SitePages, policy_of
from appliance.web import Headers


class SharePages:
    """Renders the templates of a folder."""

    def __init__(self, templates: Path, readers: Readers) -> None:
        self.readers = readers
        self._pages = SitePages(templates, readers.languages)

    def render(self, template: str, values: Mapping[str, Any], accept_language: str) -> tuple[bytes, Headers]:
        """Body and headers; the page may load and run nothing, is not cached, and sends no referrer."""
        html = self._pages.html(template, values, accept_language)
        policy = (b"content-security-policy", policy_of(html).encode())
        return html.encode(), [(b"content-type", b"text/html; charset=utf-8"), policy, VARYING, *SAFE]


SAFE: Headers = (
    (b"cache-control", b"private, no-store"), (b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"), (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"), (b"x-robots-tag", b"noindex, nofollow"),
)  # fmt: skip
