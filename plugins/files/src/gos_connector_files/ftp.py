"""The connector `ftp`: FTP and FTPS servers with machine-readable listings (MLSD, RFC 3659)."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import ClassVar

from appliance.connectors.contract import ConfigError, Context, Json, Rejected, SystemFailure
from gos_connector_files.connector import FilesConnector
from gos_connector_files.ftp_session import FtpSession
from gos_connector_files.path import join, split
from gos_connector_files.store import (
    MOST_IN_FOLDER,
    Entry,
    Kind,
    Missing,
    Page,
    Store,
    already_exists,
    draft_of,
    folder_too_full,
    page_of,
    too_large,
)

_MOST_LISTED_BYTES = 20 * 1024 * 1024
_KINDS: dict[str, Kind] = {"file": "file", "dir": "folder", "cdir": "folder", "pdir": "folder"}
_LINE = "^[^\\r\\n\\u0000]*$"


class FtpConnector(FilesConnector):
    """A folder of an FTP server."""

    name = "ftp"
    title = "FTP"
    tested_against = "ProFTPD 1.3.8"
    settings_schema: ClassVar[Json] = {
        "type": "object",
        "required": ["host", "user", "password"],
        "additionalProperties": False,
        "properties": {
            "host": {"type": "string", "minLength": 1, "maxLength": 253, "title": "Host", "secret_target": True},
            "port": {
                "type": "integer",
                "minimum": 1,
                "maximum": 65535,
                "title": "Port",
                "description": "21, or 990 with implicit TLS",
                "secret_target": True,
            },
            "tls": {
                "enum": ["explicit", "implicit", "off"],
                "title": "TLS",
                "default": "explicit",
                "description": "off sends the password and all files in clear text",
                "secret_target": True,
            },
            "ca": {"type": "string", "title": "Certificates to trust", "description": "PEM", "secret_target": True},
            "user": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": _LINE, "title": "User"},
            "password": {"type": "string", "title": "Password", "secret": True},
            "root": {
                "type": "string",
                "maxLength": 1000,
                "pattern": _LINE,
                "title": "Root",
                "default": "",
                "description": "The folder that all paths are relative to; empty for the user's initial folder",
            },
        },
    }

    @contextmanager
    def open(self, ctx: Context) -> Iterator[Store]:
        with self._session(ctx) as session:
            yield FtpStore(session, self.settings.get("root", ""))

    def check(self, ctx: Context) -> str:
        with self._session(ctx) as session:
            store = FtpStore(session, self.settings.get("root", ""))
            store.page("", None, 1)
            protection = f"over {session.protection}" if session.protection else "in clear text"
            return f"Signed in to {session.address} as {self.settings['user']} {protection}; the root is {store.root}."

    @contextmanager
    def _session(self, ctx: Context) -> Iterator[FtpSession]:
        session = FtpSession(self.settings, ctx)
        try:
            session.sign_in()
            if "MLST" not in session.features:
                raise ConfigError(
                    f"{session.address} does not support machine-readable listings (MLSD, RFC 3659) and cannot be used."
                )
            yield session
        finally:
            session.close()


class FtpStore(Store):
    """Files below a root; where links lead is up to the server."""

    def __init__(self, session: FtpSession, root: str) -> None:
        self._session = session
        if root:
            session.execute(f"CWD {root}", root)
        pwd_line = session.execute("PWD", root).lines[0]
        quoted = pwd_line.partition('"')[2].rpartition('"')[0]
        if not quoted.startswith("/"):
            raise SystemFailure(f"{session.address} did not report its current folder.")
        self.root = quoted.replace('""', '"')

    def page(self, folder: str, after: str | None, limit: int) -> Page:
        server_path = self._server_path(folder)
        if folder and self._get_entry(folder).kind != "folder":
            raise Rejected(f"{folder!r} is not a folder.")
        listing = self._session.fetch(f"MLSD {server_path}", folder, _MOST_LISTED_BYTES)
        if len(listing) > _MOST_LISTED_BYTES:
            raise folder_too_full()
        entries = []
        for line in listing.decode("utf-8", "surrogateescape").split("\n"):
            facts, separator, name = line.removesuffix("\r").partition(" ")
            is_entry = bool(separator) and _parse_facts(facts).get("type") not in ("cdir", "pdir")
            if is_entry and name not in ("", ".", "..") and "/" not in name:
                entries.append(self._entry(facts, join(folder, name)))
        if len(entries) > MOST_IN_FOLDER:
            raise folder_too_full()
        return page_of(entries, after, limit)

    def stat(self, path: str) -> Entry | None:
        reply = self._session.find(f"MLST {self._server_path(path)}", path)
        if reply is None:
            return None
        lines = [line.lstrip(" ") for line in reply.lines[1:-1]]
        if len(lines) != 1:
            raise SystemFailure(f"{self._session.address} did not describe exactly one file.")
        return self._entry(lines[0].partition(" ")[0], path)

    def read(self, path: str, most: int) -> bytes:
        entry = self._get_entry(path)
        if entry.kind != "file":
            raise Rejected(f"{path!r} is not a file.")
        if entry.size > most:
            raise too_large(path, entry.size, most)
        content = self._session.fetch(f"RETR {self._server_path(path)}", path, most)
        if len(content) > most:  # The file has grown since it was listed.
            raise too_large(path, len(content), most)
        return content

    def write(self, path: str, content: bytes, key: str) -> None:
        """Upload a draft beside the file, then rename it over the file with one command."""
        entry = self.stat(path)
        if entry is not None and entry.kind == "folder":
            raise already_exists(path)
        draft = self._server_path(join(split(path)[0], draft_of(path, key)))
        self._session.store(f"STOR {draft}", path, content)
        try:
            self._rename(draft, path)
        except Rejected:
            self._session.execute(f"DELE {draft}", path)
            raise

    def move(self, source: str, target: str) -> None:
        self._get_entry(source)
        if self.stat(target) is not None:
            raise already_exists(target)
        self._rename(self._server_path(source), target)

    def delete(self, path: str) -> bool:
        entry = self.stat(path)
        if entry is None:
            return False
        verb = "RMD" if entry.kind == "folder" else "DELE"
        self._session.execute(f"{verb} {self._server_path(path)}", path, "unknown")
        return True

    def make_folder(self, path: str) -> bool:
        created, folder = False, ""
        for name in path.split("/"):
            folder = join(folder, name)
            entry = self.stat(folder)
            if entry is None:
                self._session.execute(f"MKD {self._server_path(folder)}", folder, "unknown")
                created = True
            elif entry.kind != "folder":
                raise already_exists(folder)
        return created

    def _rename(self, source: str, target: str) -> None:
        self._session.execute(f"RNFR {source}", target)
        self._session.execute(f"RNTO {self._server_path(target)}", target, "unknown")

    def _get_entry(self, path: str) -> Entry:
        entry = self.stat(path)
        if entry is None:
            raise Missing(path)
        return entry

    def _server_path(self, path: str) -> str:
        """Return the absolute path, so that no name is taken for an option or a home folder."""
        return f"{self.root.rstrip('/')}/{path}" if path else self.root

    def _entry(self, facts: str, path: str) -> Entry:
        values = _parse_facts(facts)
        kind = _KINDS.get(values.get("type", "").lower(), "other")
        size = values.get("size", "0")
        if not size.isdigit():
            raise SystemFailure(f"{self._session.address} reported a size that is not a number.")
        printable = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if printable != path:  # JSON cannot represent the name: the entry is listed, but cannot be used.
            kind = "other"
        modified = _parse_time(values.get("modify", ""))
        return Entry(printable, kind, int(size) if kind == "file" else 0, modified, values.get("unique", ""))


def _parse_facts(text: str) -> dict[str, str]:
    pairs = (fact.partition("=") for fact in text.split(";") if fact)
    return {name.lower(): value for name, _, value in pairs}


def _parse_time(text: str) -> float | None:
    try:
        return datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
