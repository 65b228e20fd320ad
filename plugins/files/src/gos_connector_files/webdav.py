"""The connector `webdav`: WebDAV (RFC 4918) over the appliance's HTTP client."""

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
    retry_after,
)
from gos_connector_files.connector import FilesConnector
from gos_connector_files.path import join, split
from gos_connector_files.store import (
    MOST_IN_FOLDER,
    Entry,
    Missing,
    Page,
    Store,
    already_exists,
    draft_of,
    folder_too_full,
    page_of,
    too_large,
)

_PROPFIND_BODY = (
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
                "description": "The URL of the folder that all paths are relative to",
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
            raise ConfigError(f"{store.base} does not exist; check the path in `base_url`.")
        return f"{store.base} supports WebDAV."


@dataclass(frozen=True)
class WebdavStore(Store):
    """Resources below an address."""

    settings: Json
    ctx: Context

    @property
    def base(self) -> str:
        return str(self.settings["base_url"]).rstrip("/")

    def page(self, folder: str, after: str | None, limit: int) -> Page:
        entries = self._find(folder, "1", is_folder=True)
        if entries is None:
            raise Missing(folder)
        if entries[0].kind != "folder":
            raise Rejected(f"{folder!r} is not a folder.")
        if len(entries) > MOST_IN_FOLDER:
            raise folder_too_full()
        return page_of(entries[1:], after, limit)

    def stat(self, path: str) -> Entry | None:
        entries = self._find(path, "0", is_folder=not path)
        return None if entries is None else entries[0]

    def read(self, path: str, most: int) -> bytes:
        entry = self.stat(path)
        if entry is None:
            raise Missing(path)
        if entry.kind != "file":
            raise Rejected(f"{path!r} is not a file.")
        if entry.size > most:
            raise too_large(path, entry.size, most)
        answer = self._send("GET", path, "not_done")
        if answer.status != 200:
            raise _refusal(answer, path, "not_done")
        if len(answer.content) > most:  # The file has grown since it was listed.
            raise too_large(path, len(answer.content), most)
        return answer.content

    def write(self, path: str, content: bytes, key: str) -> None:
        """Upload a draft beside the file, then move it over the file with one request, so no partial file is ever visible."""
        entry = self.stat(path)
        if entry is not None and entry.kind != "file":  # A MOVE would replace a whole folder.
            raise already_exists(path)
        draft = join(split(path)[0], draft_of(path, key))
        self._check_success(self._send("PUT", draft, "not_done", content=content), path, "not_done")
        headers = (*self._destination_header(path), ("Overwrite", "T"))
        self._check_success(self._send("MOVE", draft, "unknown", headers), path, "unknown")

    def move(self, source: str, target: str) -> None:
        answer = self._send("MOVE", source, "unknown", (*self._destination_header(target), ("Overwrite", "F")))
        if answer.status == 412:
            raise already_exists(target)
        self._check_success(answer, source, "unknown")

    def delete(self, path: str) -> bool:
        entries = self._find(path, "1", is_folder=False)
        if entries is None:
            return False
        if len(entries) > 1:  # A DELETE would remove everything in it.
            raise Rejected(f"The folder {path!r} is not empty; empty it first.")
        answer = self._send("DELETE", path + ("/" if entries[0].kind == "folder" else ""), "unknown")
        if answer.status == 404:
            return False
        self._check_success(answer, path, "unknown")
        return True

    def make_folder(self, path: str) -> bool:
        created, folder = False, ""
        for name in path.split("/"):
            folder = join(folder, name)
            entry = self.stat(folder)
            if entry is None:
                self._check_success(self._send("MKCOL", f"{folder}/", "unknown"), folder, "unknown")
                created = True
            elif entry.kind != "folder":
                raise already_exists(folder)
        return created

    def _destination_header(self, path: str) -> tuple[tuple[str, str], ...]:
        return (("Destination", f"{self.base}/{quote(path)}"),)

    def _find(self, path: str, depth: str, *, is_folder: bool) -> list[Entry] | None:
        """Return the entry at the path, with depth 1 followed by its children; None when it does not exist."""
        headers = (("Depth", depth), ("Content-Type", "application/xml"))
        target = f"{path}/" if is_folder and path else path
        answer = self._send("PROPFIND", target, "not_done", headers, content=_PROPFIND_BODY)
        if answer.status in (301, 302, 307, 308) and not target.endswith("/"):
            # Some servers require a trailing slash for folders.
            answer = self._send("PROPFIND", f"{target}/", "not_done", headers, content=_PROPFIND_BODY)
        if answer.status == 404:
            return None
        if answer.status != 207:
            raise _refusal(answer, path, "not_done")
        return _parse_entries(answer, path)

    def _send(
        self,
        method: str,
        path: str,
        when_lost: Outcome,
        headers: tuple[tuple[str, str], ...] = (),
        *,
        content: bytes = b"",
    ) -> HttpAnswer:
        all_headers = (*headers, *self._credentials())
        url = f"{self.base}/{quote(path)}"
        try:
            return self.ctx.http.send(HttpRequest(method, url, all_headers, content=content, follow_redirects=False))
        except ConnectorError as error:
            error.outcome = error.outcome if when_lost == "unknown" else "not_done"
            raise

    def _credentials(self) -> tuple[tuple[str, str], ...]:
        if "user" not in self.settings:
            return ()
        login = f"{self.settings['user']}:{self.settings.get('password', '')}".encode()
        return (("Authorization", f"Basic {base64.b64encode(login).decode('ascii')}"),)

    def _check_success(self, answer: HttpAnswer, path: str, when_lost: Outcome) -> None:
        if answer.status not in (200, 201, 204):
            raise _refusal(answer, path, when_lost)


def _parse_entries(answer: HttpAnswer, path: str) -> list[Entry]:
    """Parse a 207 answer: first the resource itself, which has the shortest path, then its direct children."""
    try:
        root = fromstring(answer.content)
        responses = [(_href_path(each), each) for each in root.iter("{DAV:}response")]
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise SystemFailure("The server did not answer with WebDAV.", details={"status": answer.status}) from error
    if not responses:
        raise SystemFailure("The server did not answer with WebDAV.", details={"status": answer.status})
    responses.sort(key=lambda pair: len(pair[0]))
    (own_path, first), rest = responses[0], responses[1:]
    entries = [_parse_entry(first, path)]
    for href, each in rest:
        folder, _, name = href.rpartition("/")
        if folder == own_path and name not in ("", ".", ".."):
            entries.append(_parse_entry(each, join(path, name)))
    return entries


def _href_path(response: Element) -> str:
    return unquote(urlsplit(response.findtext("{DAV:}href", "")).path).rstrip("/")


def _parse_entry(response: Element, path: str) -> Entry:
    if response.find(".//{DAV:}resourcetype/{DAV:}collection") is not None:
        return Entry(path, "folder", 0, _parse_time(response.findtext(".//{DAV:}getlastmodified")))
    size = (response.findtext(".//{DAV:}getcontentlength") or "0").strip()
    tag = (response.findtext(".//{DAV:}getetag") or "").strip()
    if not size.isdigit():
        raise SystemFailure("The server reported a size that is not a number.")
    return Entry(path, "file", int(size), _parse_time(response.findtext(".//{DAV:}getlastmodified")), tag)


def _parse_time(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError):
        return None


def _refusal(answer: HttpAnswer, path: str, when_lost: Outcome) -> ConnectorError:
    """Return the contract's error for an unsuccessful status."""
    status, details = answer.status, {"status": answer.status}
    if status == 401:
        return AuthError("The server does not accept the credentials; check `user` and `password`.", details=details)
    if status == 404:
        return Missing(path)
    if status == 409:
        return Rejected(f"The folder of {path!r} does not exist; create it first.", details=details)
    if status == 423:
        return TransientError(f"{path!r} is locked by another client.", details=details)
    if status in (429, 503):
        return RateLimited("The server limits the request rate.", retry_after=retry_after(answer), details=details)
    if status == 507:
        return Rejected("The server has no space left; delete files there.", details=details)
    if 400 <= status < 500:
        return Rejected(f"The server refused this with {path!r} ({status}).", details=details)
    if status >= 500:
        return TransientError(f"The server failed ({status}).", outcome=when_lost, details=details)
    return SystemFailure(f"The server did not answer with WebDAV ({status}); check `base_url`.", outcome=when_lost, details=details)
