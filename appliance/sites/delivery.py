"""Decides how a document is delivered: as a download, unless browsers show its type without running any code."""

from collections.abc import Mapping

from appliance.documents import disposition
from appliance.documents.sharing import FOREVER as IMMUTABLE
from appliance.documents.sharing import DeliverableContent
from appliance.webapps import ServedFile

from .front.representation import CHECKED, FOREVER, Representations

# Types that browsers show without running code; the type is detected from the first bytes of the content.
INLINE = frozenset(
    {
        "image/png", "image/jpeg", "image/webp", "image/gif", "image/avif", "application/pdf", "text/plain",
        "audio/mpeg", "audio/wav", "video/mp4", "video/webm",
    }
)  # fmt: skip
# Browsers wrap an image or a video in a page of their own: it may load nothing else, runs no script, and has no origin. PDFs
# are not shown in a sandbox, so they get the policy without it and run in the viewer's own origin.
_VIEWER_POLICY = "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"
_SANDBOX_POLICY = "default-src 'none'; sandbox"
_ANYONE, _NO_ONE = "*", "'none'"
PRIVATE = "private, no-store"


def represent(delivery: DeliverableContent, *, public: bool, cache: str | int = "") -> Representations:
    """The content with its headers. Public documents may be read and embedded by every page; those of a share only by their
    visitor."""
    file = ServedFile(delivery.sha256, delivery.size, {"identity": (delivery.sha256, delivery.size)})
    return Representations(delivery.name, file, _headers(delivery, public=public, cache=cache))


def _headers(delivery: DeliverableContent, *, public: bool, cache: str | int) -> Mapping[str, str]:
    is_shown = delivery.media_type in INLINE
    is_pdf = delivery.media_type == "application/pdf"
    policy = (_VIEWER_POLICY if is_pdf else f"{_VIEWER_POLICY}; sandbox") if is_shown else _SANDBOX_POLICY
    is_text = delivery.media_type.startswith("text/")
    headers = {
        "content-type": f"{delivery.media_type}; charset=utf-8" if is_text else delivery.media_type,
        "content-disposition": disposition(delivery.name, "inline" if is_shown and public else "attachment"),
        "content-security-policy": f"{policy}; frame-ancestors {_ANYONE if public else _NO_ONE}",
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
