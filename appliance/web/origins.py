"""Where a browser says that a request comes from: `Sec-Fetch-Site`, or `Origin` in browsers that do not send it."""

from collections.abc import Mapping


def is_own_page(headers: Mapping[str, str], origin: str) -> bool:
    """Whether a POST comes from our own origin.  `headers` has lower-case names, `origin` is `scheme://host[:port]`.

    A request with neither header is refused: every current browser sends at least one of them with a POST.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    return headers.get("origin", "").lower() == origin.lower()


def is_foreign_page(headers: Mapping[str, str], origin: str) -> bool:
    """Whether a request comes from a page of another origin; False for clients other than browsers, which say nothing."""
    return headers.get("sec-fetch-site") not in (None, "none", "same-origin") or headers.get("origin") not in (None, origin)
