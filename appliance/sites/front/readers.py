"""Who reads a refusal: visitors of content hosts and people in a browser in their language, programs in English."""

from collections.abc import Mapping

from appliance.core.catalogues import Languages
from appliance.core.errors import ApplianceError, NotFound
from appliance.core.texts import Language
from appliance.web import Headers, Reader, Scope, Send, answer, refuse

READING = ("GET", "HEAD")


class Readers:
    """Finds the reader of a response, and refuses requests in their language."""

    def __init__(self, languages: Languages) -> None:
        self.languages = languages

    def of_visitor(self, scope: Scope) -> Reader:
        """The visitor of a content host: a person, or the script of an app, which shows them the sentence."""
        headers, is_reading = dict(scope["headers"]), scope["method"] in READING
        has_page = _is_shown(headers, is_reading=is_reading)
        home = "/" if "gos.host" not in scope or scope["gos.host"].kind != "cdn" else ""
        return Reader(self._language(headers), has_page, home, is_reading)

    def of_page(self, scope: Scope) -> Reader | None:
        """The person who opens a page of another host; None for a program."""
        headers = dict(scope["headers"])
        if scope["method"] not in READING or scope["path"].startswith("/api/") or not _is_shown(headers, is_reading=True):
            return None
        return Reader(self._language(headers), has_page=True)

    async def refuse(self, error: ApplianceError, scope: Scope, send: Send) -> None:
        """Refuse the request of a visitor."""
        await refuse(send, error, scope["gos.request_id"], self.of_visitor(scope))

    async def refuse_missing(self, scope: Scope, send: Send, headers: Headers) -> None:
        """Say that there is nothing at this address: to a person on a page, otherwise in two words with these headers."""
        reader = self.of_visitor(scope)
        if reader.has_page:
            await refuse(send, NotFound("there is nothing at this address"), scope["gos.request_id"], reader)
        else:
            varying = (b"vary", b"Sec-Fetch-Mode, Accept, Accept-Language")
            await answer(send, 404, b"not found", [(b"content-type", b"text/plain; charset=utf-8"), varying, *headers])

    def _language(self, headers: Mapping[bytes, bytes]) -> Language:
        return self.languages.choose("", headers.get(b"accept-language", b"").decode("latin1"))


def _is_shown(headers: Mapping[bytes, bytes], *, is_reading: bool) -> bool:
    """Whether a browser shows the response as a page."""
    mode = headers.get(b"sec-fetch-mode")
    return mode == b"navigate" if mode is not None else is_reading and b"text/html" in headers.get(b"accept", b"").lower()
