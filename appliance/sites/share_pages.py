"""The pages of a share: what is offered, the password, and the one for every link that leads to nothing."""

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .answers import Headers

_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


class SharePages:
    """Renders the templates of a folder."""

    def __init__(self, templates: Path) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(str(templates)), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip

    def render(self, template: str, values: Mapping[str, Any]) -> tuple[bytes, Headers]:
        """Body and headers: the page may load and run nothing, is kept by nobody, and tells nobody its address."""
        html = self._environment.get_template(template).render(values)
        return html.encode(), [(b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", _policy(html)), *SAFE]


SAFE: Headers = (
    (b"cache-control", b"private, no-store"), (b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"), (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"), (b"x-robots-tag", b"noindex, nofollow"),
)  # fmt: skip


def _policy(html: str) -> bytes:
    """Nothing but the one style of the page itself, named by its digest."""
    style = _STYLE.search(html)
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() if style else ""
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    return policy.encode()


def readable_size(size: int) -> str:
    """`812 bytes`, `3.4 MB`."""
    if size < 1000:
        return f"{size} bytes"
    value, units = size / 1000, ("kB", "MB", "GB", "TB")
    for unit in units:
        if value < 1000 or unit == units[-1]:
            return f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("every size has a unit")
