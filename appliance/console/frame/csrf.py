"""Whether a POST comes from a page of our own: `Sec-Fetch-Site`, or `Origin` where a browser does not send it."""

from collections.abc import Mapping


def is_own_page(headers: Mapping[str, str], origin: str) -> bool:
    """True for a form of the same origin.  `headers` has lower-case names, `origin` is `scheme://host[:port]`.

    A request that names neither is refused: every browser of this decade sends at least one of them with a POST.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    return headers.get("origin", "").lower() == origin.lower()
