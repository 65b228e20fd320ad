"""How a document is delivered to whoever asks: as a file to keep, unless it is of a kind that no browser runs."""

from collections.abc import Mapping

from appliance.documents import disposition
from appliance.documents.sharing import FOREVER as IMMUTABLE
from appliance.documents.sharing import Leaving
from appliance.webapps import ServedFile

from .front.representation import CHECKED, FOREVER, Representations

# Kinds that a browser shows and in which it runs nothing; the type is what the content's own first bytes say.
INLINE = frozenset(
    {
        "image/png", "image/jpeg", "image/webp", "image/gif", "image/avif", "application/pdf", "text/plain",
        "audio/mpeg", "audio/wav", "video/mp4", "video/webm",
    }
)  # fmt: skip
# A picture or a film is a page of the browser's own around the file; nothing else is loaded, no script runs, and the page has
# no origin.  Browsers do not show a PDF in a sandbox: it gets the rules without one, and runs in the viewer's own origin.
_SHOWN = "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"
_SANDBOX = "default-src 'none'; sandbox"
_ANYBODY, _NOBODY = "*", "'none'"
PRIVATE = "private, no-store"


def represent(found: Leaving, *, public: bool, cache: str | int = "") -> Representations:
    """The content with its headers.  Public ones may be read and embedded by every page, since everybody may have them;
    those of a share only by the visitor they are for."""
    file = ServedFile(found.sha256, found.size, {"identity": (found.sha256, found.size)})
    return Representations(found.name, file, _headers(found, public=public, cache=cache))


def _headers(found: Leaving, *, public: bool, cache: str | int) -> Mapping[str, str]:
    shown = found.media_type in INLINE
    pdf = found.media_type == "application/pdf"
    policy = (_SHOWN if pdf else f"{_SHOWN}; sandbox") if shown else _SANDBOX
    text = found.media_type.startswith("text/")
    headers = {
        "content-type": f"{found.media_type}; charset=utf-8" if text else found.media_type,
        "content-disposition": disposition(found.name, "inline" if shown and public else "attachment"),
        "content-security-policy": f"{policy}; frame-ancestors {_ANYBODY if public else _NOBODY}",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "cross-origin" if public else "same-origin",
    }
    if public:
        return headers | {"cache-control": _cache_control(cache), "access-control-allow-origin": "*"}
    return headers | {"cache-control": PRIVATE, "x-robots-tag": "noindex, nofollow"}


def _cache_control(cache: str | int) -> str:
    if isinstance(cache, int):
        return f"public, max-age={cache}"
    return FOREVER if cache == IMMUTABLE else CHECKED
