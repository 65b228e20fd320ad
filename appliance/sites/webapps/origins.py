"""Checks whether a request comes from the app's own pages. Pure functions.

The browser says so itself (`Sec-Fetch-Site`, or `Origin` where that is missing). Cookies do not count: a sibling app on a
shared domain can make a browser send or set cookies, but not lie about the origin of a request.
"""

from collections.abc import Mapping

from appliance.core.errors import BrowserCallRefused
from appliance.core.texts import mark_error

READING = ("GET", "HEAD")
_CROSS_SITE = mark_error("this call comes from another site; open the app itself and try again")
_NO_ORIGIN = mark_error("the origin of this call is unknown; send Sec-Fetch-Site or Origin as browsers do, or JSON without cookies")


def check_origin(method: str, own: str, headers: Mapping[str, str], *, public: bool) -> None:
    """BrowserCallRefused unless the request comes from a page of `own` (`https://host`), follows a link, or is not from a
    browser: it has no cookie, calls a `public` route, and has a form that browsers send only to their own origin."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        is_navigation = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
        if site != "same-origin" and not (method in READING and (site == "none" or is_navigation)):
            raise BrowserCallRefused(_CROSS_SITE)
    elif origin is not None:
        if origin.lower() != own.lower():
            raise BrowserCallRefused(_CROSS_SITE)
    elif method not in READING and not (public and "cookie" not in headers and _needs_preflight(method, headers)):
        raise BrowserCallRefused(_NO_ORIGIN)


def _needs_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a page of another origin would need a CORS preflight to send this, which is refused here."""
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    return method in ("PUT", "PATCH", "DELETE") or media == "application/json"
