"""Whether a request comes from the app's own pages; pure.

A browser says so itself (`Sec-Fetch-Site`, or `Origin` where that is absent).  What it says counts, never a cookie: a sibling
app on a shared domain can make a browser send cookies, and set some, but cannot make it lie about where a request began.
"""

from collections.abc import Mapping

from appliance.core.errors import BrowserCallRefused

READING = ("GET", "HEAD")
_FORGED = "this call comes from another site; open the app itself and try again"
_UNKNOWN = "it cannot be told where this call comes from; send Sec-Fetch-Site or Origin as a browser does, or JSON without cookies"


def refuse_foreign(method: str, own: str, headers: Mapping[str, str], *, public: bool) -> None:
    """BrowserCallRefused unless the request comes from pages of `own` (`https://host`), is a link that is followed, or comes
    from no browser: without a cookie, to a `public` route, in a form that a browser sends to its own origin only."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
        if site != "same-origin" and not (method in READING and (site == "none" or followed)):
            raise BrowserCallRefused(_FORGED)
    elif origin is not None:
        if origin.lower() != own.lower():
            raise BrowserCallRefused(_FORGED)
    elif method not in READING and not (public and "cookie" not in headers and _needs_preflight(method, headers)):
        raise BrowserCallRefused(_UNKNOWN)


def _needs_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Whether no page of another origin can make a browser send this without asking first, which is refused here."""
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    return method in ("PUT", "PATCH", "DELETE") or media == "application/json"
