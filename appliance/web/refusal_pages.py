"""Pages for people whose request is refused before any page of the console or of an app can be made."""

import base64
import hashlib
import html
from collections.abc import Sequence

from appliance.core.texts import ENGLISH, Language, mark

_STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}body{margin:0}"
    "main{max-width:36rem;margin:3rem auto;padding:0 1rem;overflow-wrap:anywhere}h1{font-size:1.5rem;line-height:1.25}"
)
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
PAGE_POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; img-src data:; frame-ancestors 'none'"
"""The Content-Security-Policy of such a page."""


TITLE = mark("That did not work")
REQUEST = mark("Request %(request_id)s")


def refusal_page(
    lines: Sequence[str], request_id: str, link: tuple[str, str], *, title: str = TITLE, language: Language = ENGLISH
) -> bytes:
    """A page that needs nothing else: what is the matter, and a link, its address and text, to go on.

    Its title and the name of the request are translated, what the caller passes has the language already.
    """
    title, request = (html.escape(language.catalogue.gettext(each)) for each in (title, REQUEST))
    request %= {"request_id": html.escape(request_id)}
    paragraphs = "".join(f"<p>{html.escape(line[:1].upper() + line[1:])}</p>" for line in lines)
    address, text = (html.escape(each) for each in link)
    return (
        f'<!doctype html><html lang="{language.tag}" dir="{language.direction}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main><h1>{title}</h1>{paragraphs}"
        f'<p><a href="{address}">{text}</a></p><p><small>{request}</small></p></main></body></html>'
    ).encode()
