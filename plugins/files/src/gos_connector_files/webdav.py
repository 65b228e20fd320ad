"""WebDAV (RFC 4918) by the appliance's HTTP client."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import ClassVar
from urllib.parse import quote, unquote, urlsplit
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    HttpAnswer,
    HttpRequest,
    Json,
    Outcome,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from gos_connector_files.connector import FilesConnector
from gos_connector_files.path import join, split
from gos_connector_files.store import (
    MOST_IN_FOLDER,
    Entry,
    Missing,
    Page,
    Store,
    draft_of,
    in_the_way,
    page_of,
    too_full,
    too_large,
)

_ASK = (
    b'<?xml version="1.0" encoding="utf-8"?><propfind xmlns="DAV:"><prop>'
    b"<resourcetype/><getcontentlength/><getlastmodified/><getetag/></prop></propfind>"
)


class WebdavConnector(FilesConnector):
    """A folder of a WebDAV server."""

    name = "webdav"
    title = "WebDAV"
    tested_against = "Apache 2.4"
    settings_schema: ClassVar[Json] = {
        "type": "object",
        "required": ["base_url"],
        "additionalProperties": False,
        "properties": {
            "base_url": {
                "type": "string",
                "pattern": "^https?://[^/?#@]+(/[^?#]*)?$",
                "title": "Address",
                "description": "Of the folder that all paths are below",
                "secret_target": True,
            },
            "user": {"type": "string", "minLength": 1, "maxLength": 200, "title": "User"},
            "password": {"type": "string", "title": "Password", "secret": True},
        },
    }

    @contextmanager
    def open(self, ctx: Context) -> Iterator[Store]:
        yield WebdavStore(self.settings, ctx)

    def check(self, ctx: Context) -> str:
        store = WebdavStore(self.settings, ctx)
        if store.stat("") is None:
            raise ConfigError(f"There is no {store.base}; check the path in `base_url`.")
        return f"{store.base} answers WebDAV."


@dataclass(frozen=True)
class WebdavStore(Store):
    """Resources below an address."""

    settings: Json
    ctx: Context

    @property
    def base(self) -> str:
        return str(self.settings["base_url"]).rstrip("/")

    def page(self, folder: str, after: str | None, limit: int) -> Page:
        found = self._find(folder, "1", is_folder=True)
        if found is None:
            raise Missing(folder)
        if found[0].kind != "folder":
            raise Rejected(f"{folder!r} is no folder.")
        if len(found) > MOST_IN_FOLDER:
            raise too_full()
        return page_of(found[1:], after, limit)

    def stat(self, path: str) -> Entry | None:
        found = self._find(path, "0", is_folder=not path)
        return None if found is None else found[0]

    def read(self, path: str, most: int) -> bytes:
        found = self.stat(path)
        if found is None:
            raise Missing(path)
        if found.kind != "file":
            raise Rejected(f"{path!r} is no file.")
        if found.size > most:
            raise too_large(path, found.size, most)
        answer = self._send("GET", path, "not_done")
        if answer.status != 200:
            raise _refusal(answer, path, "not_done")
        if len(answer.content) > most:  # it has grown meanwhile
            raise too_large(path, len(answer.content), most)
        return answer.content

    def write(self, path: str, content: bytes, key: str) -> None:
        """Beside the file under a name of its own, then in its place by one request: nobody ever sees half of it."""
        found = self.stat(path)
        if found is not None and found.kind != "file":  # a MOVE would replace a whole folder
            raise in_the_way(path)
        draft = join(split(path)[0], draft_of(path, key))
        self._done(self._send("PUT", draft, "not_done", content=content), path, "not_done")
        self._done(self._send("MOVE", draft, "unknown", (*self._to(path), ("Overwrite", "T"))), path, "unknown")

    def move(self, source: str, target: str) -> None:
        answer = self._send("MOVE", source, "unknown", (*self._to(target), ("Overwrite", "F")))
        if answer.status == 412:
            raise in_the_way(target)
        self._done(answer, source, "unknown")

    def delete(self, path: str) -> bool:
        found = self._find(path, "1", is_folder=False)
        if found is None:
            return False
        if len(found) > 1:  # a DELETE would take all that is in it
            raise Rejected(f"The folder {path!r} is not empty; empty it first.")
        answer = self._send("DELETE", path + ("/" if found[0].kind == "folder" else ""), "unknown")
        if answer.status == 404:
            return False
        self._done(answer, path, "unknown")
        return True

    def make_folder(self, path: str) -> bool:
        made, folder = False, ""
        for name in path.split("/"):
            folder = join(folder, name)
            found = self.stat(folder)
            if found is None:
                self._done(self._send("MKCOL", f"{folder}/", "unknown"), folder, "unknown")
                made = True
            elif found.kind != "folder":
                raise in_the_way(folder)
        return made

    def _to(self, path: str) -> tuple[tuple[str, str], ...]:
        return (("Destination", f"{self.base}/{quote(path)}"),)

    def _find(self, path: str, depth: str, *, is_folder: bool) -> list[Entry] | None:
        """What is at the path and, with depth 1, directly in it; None when nothing is."""
        headers = (("Depth", depth), ("Content-Type", "application/xml"))
        target = f"{path}/" if is_folder and path else path
        answer = self._send("PROPFIND", target, "not_done", headers, content=_ASK)
        if answer.status in (301, 302, 307, 308) and not target.endswith("/"):
            # Some servers know a folder only by its name with a slash.
            answer = self._send("PROPFIND", f"{target}/", "not_done", headers, content=_ASK)
        if answer.status == 404:
            return None
        if answer.status != 207:
            raise _refusal(answer, path, "not_done")
        return _entries(answer, path)

    def _send(
        self,
        method: str,
        path: str,
        when_lost: Outcome,
        headers: tuple[tuple[str, str], ...] = (),
        *,
        content: bytes = b"",
    ) -> HttpAnswer:
        signed = (*headers, *self._credentials())
        url = f"{self.base}/{quote(path)}"
        try:
            return self.ctx.http.send(HttpRequest(method, url, signed, content=content, follow_redirects=False))
        except ConnectorError as error:
            error.outcome = error.outcome if when_lost == "unknown" else "not_done"
            raise

    def _credentials(self) -> tuple[tuple[str, str], ...]:
        if "user" not in self.settings:
            return ()
        login = f"{self.settings['user']}:{self.settings.get('password', '')}".encode()
        return (("Authorization", f"Basic {base64.b64encode(login).decode('ascii')}"),)

    def _done(self, answer: HttpAnswer, path: str, when_lost: Outcome) -> None:
        if answer.status not in (200, 201, 204):
            raise _refusal(answer, path, when_lost)


def _entries(answer: HttpAnswer, path: str) -> list[Entry]:
    """What a 207 tells: first the resource itself, whose address is the shortest, then what is directly in it."""
    try:
        root = fromstring(answer.content)
        found = [
            (unquote(urlsplit(each.findtext("{DAV:}href", "")).path).rstrip("/"), each) for each in root.iter("{DAV:}response")
        ]
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise SystemFailure("The server's answer is not WebDAV's.", details={"status": answer.status}) from error
    if not found:
        raise SystemFailure("The server's answer is not WebDAV's.", details={"status": answer.status})
    found.sort(key=lambda pair: len(pair[0]))
    (own, first), rest = found[0], found[1:]
    entries = [_entry(first, path)]
    for href, each in rest:
        folder, _, name = href.rpartition("/")
        if folder == own and name not in ("", ".", ".."):
            entries.append(_entry(each, join(path, name)))
    return entries


def _place(response: Element) -> str:
    return unquote(urlsplit(response.findtext("{DAV:}href", "")).path).rstrip("/")


def _entry(response: Element, path: str) -> Entry:
    if response.find(".//{DAV:}resourcetype/{DAV:}collection") is not None:
        return Entry(path, "folder", 0, _moment(response.findtext(".//{DAV:}getlastmodified")))
    size = (response.findtext(".//{DAV:}getcontentlength") or "0").strip()
    tag = (response.findtext(".//{DAV:}getetag") or "").strip()
    if not size.isdigit():
        raise SystemFailure("The server tells a size that is no number.")
    return Entry(path, "file", int(size), _moment(response.findtext(".//{DAV:}getlastmodified")), tag)


def _moment(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError):
        return None


def _refusal(answer: HttpAnswer, path: str, when_lost: Outcome) -> ConnectorError:
    """What a status means."""
    status, details = answer.status, {"status": answer.status}
    if status == 401:
        return AuthError("The server does not let this user in; check user and password.", details=details)
    if status == 404:
        return Missing(path)
    if status == 409:
        return Rejected(f"The folder of {path!r} is not there; make it first.", details=details)
    if status == 423:
        return TransientError(f"{path!r} is locked by somebody who works with it.", details=details)
    if status in (429, 503):
        told = answer.headers.get("retry-after", "")
        return RateLimited("The server asks for patience.", retry_after=float(told) if told.isdigit() else None, details=details)
    if status == 507:
        return Rejected("The server has no room left; delete something there.", details=details)
    if 400 <= status < 500:
        return Rejected(f"The server refused this with {path!r} ({status}).", details=details)
    if status >= 500:
        return TransientError(f"The server failed ({status}).", outcome=when_lost, details=details)
    return SystemFailure(f"The server's answer is not WebDAV's ({status}); check `base_url`.", outcome=when_lost, details=details)
