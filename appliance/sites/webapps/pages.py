"""Pages on the hosts of content: templates with their one style, in the language that the browser asks for."""

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from appliance.core import texts
from appliance.core.catalogues import Languages

_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


class SitePages:
    """Renders the templates of a folder."""

    def __init__(self, templates: Path, languages: Languages) -> None:
        self._languages = languages
        self._environment = Environment(
            loader=FileSystemLoader(str(templates)), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip
        texts.teach(self._environment)
        self._environment.filters |= {"sentence": _sentence, "size": readable_size}

    def html(self, template: str, values: Mapping[str, Any], accept_language: str) -> str:
        """The page, and with it the only language it speaks."""
        with texts.speaking(self._languages.choose("", accept_language)):
            return self._environment.get_template(template).render(values)


def _sentence(text: str) -> str:
    """An error's message in the reader's language, with a capital at its beginning and one full stop at its end."""
    told = texts.tell(text)
    return f"{told[:1].upper()}{told[1:]}".rstrip(".") + "."


def readable_size(size: int) -> str:
    """`812 bytes`, `3.4 MB`."""
    if size < 1000:
        return texts.ngettext("%(num)s byte", "%(num)s bytes", size)
    value, units = size / 1000, ("kB", "MB", "GB", "TB")
    for unit in units:
        if value < 1000 or unit == units[-1]:
            return f"{texts.decimal(f'{value:.1f}')} {unit}"
        value /= 1000
    raise AssertionError("every size has a unit")


def policy_of(html: str) -> str:
    """Nothing but the one style of the page itself, named by its digest."""
    style = _STYLE.search(html)
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() if style else ""
    allowed = f"style-src 'sha256-{digest}'; " if style else ""
    return f"default-src 'none'; {allowed}form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
