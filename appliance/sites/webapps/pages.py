"""Renders pages of the content hosts, in the language that the browser prefers."""

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from appliance.core import texts
from appliance.core.catalogues import Languages

VARYING = (b"vary", b"accept-language")
"""The header of a page in the language of its reader."""
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


class SitePages:
    """Renders the templates of a folder."""

    def __init__(self, templates: Path, languages: Languages) -> None:
        self._languages = languages
        self._environment = Environment(
            loader=FileSystemLoader(str(templates)), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip
        texts.install_translations(self._environment)
        self._environment.filters |= {"sentence": _sentence, "size": readable_size}

    def html(self, template: str, values: Mapping[str, Any], accept_language: str) -> str:
        """Render the page in the preferred language."""
        with texts.use_language(self._languages.choose("", accept_language)):
            return self._environment.get_template(template).render(values)


def _sentence(text: str) -> str:
    """An error message in the reader's language, with a capital at the beginning and a full stop at the end."""
    translated = texts.translate(text)
    return f"{translated[:1].upper()}{translated[1:]}".rstrip(".") + "."


def readable_size(size: int) -> str:
    """A size for people, such as `812 bytes` or `3.4 MB`."""
    if size < 1000:
        return texts.ngettext("%(num)s byte", "%(num)s bytes", size)
    value, units = size / 1000, ("kB", "MB", "GB", "TB")
    for unit in units:
        if value < 1000 or unit == units[-1]:
            return f"{texts.format_decimal(f'{value:.1f}')} {unit}"
        value /= 1000
    raise AssertionError("every size has a unit")


def policy_of(html: str) -> str:
    """A content security policy that allows only the page's own inline style, by its digest."""
    style = _STYLE.search(html)
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() if style else ""
    style_source = f"style-src 'sha256-{digest}'; " if style else ""
    return f"default-src 'none'; {style_source}form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
