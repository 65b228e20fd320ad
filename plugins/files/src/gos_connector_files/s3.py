"""The connector `s3`: S3-compatible services, with objects as files and `/` in their keys as folders."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import quote, unquote_plus
from xml.etree.ElementTree import Element

from appliance.connectors.contract import Action, Context, Effect, Json, Rejected, SystemFailure
from gos_connector_files.bucket import Bucket, ObjectRequest, parse_document
from gos_connector_files.connector import FilesConnector
from gos_connector_files.declaration import BUCKET_ACTIONS, USUAL_SECONDS
from gos_connector_files.path import clean, join
from gos_connector_files.store import MOST_IN_FOLDER, Entry, Missing, Page, Store, already_exists, folder_too_full, too_large

_MAX_PAGE = 1000


class S3Connector(FilesConnector):
    """A bucket, or one folder of it."""

    name = "s3"
    title = "S3"
    tested_against = "OpenStack Swift 2.30"
    actions: ClassVar[tuple[Action, ...]] = BUCKET_ACTIONS
    settings_schema: ClassVar[Json] = {
        "type": "object",
        "required": ["endpoint", "bucket", "access_key", "secret_key"],
        "additionalProperties": False,
        "properties": {
            "endpoint": {
                "type": "string",
                "pattern": "^https?://[^/?#@]+(/[^?#]*)?$",
                "title": "Endpoint",
                "description": "Such as https://s3.eu-central-1.amazonaws.com, without the bucket",
                "secret_target": True,
            },
            "region": {"type": "string", "pattern": "^[A-Za-z0-9-]{1,60}$", "title": "Region", "default": "us-east-1"},
            "bucket": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$", "title": "Bucket"},
            "addressing": {
                "enum": ["path", "virtual"],
                "title": "Addressing",
                "default": "path",
                "description": "path: endpoint/bucket/name; virtual: the bucket is part of the host",
            },
            "access_key": {"type": "string", "minLength": 1, "maxLength": 300, "pattern": "^[^\\s/,]+$", "title": "Access key"},
            "secret_key": {"type": "string", "minLength": 1, "title": "Secret key", "secret": True},
            "session_token": {"type": "string", "pattern": "^\\S+$", "title": "Session token", "secret": True},
            "root": {
                "type": "string",
                "maxLength": 900,
                "title": "Root",
                "default": "",
                "description": "The folder that all paths are relative to; empty for the whole bucket",
            },
        },
    }

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self.verbs |= {"copy": self._copy, "presign": self._presign}

    @contextmanager
    def open(self, ctx: Context) -> Iterator[Store]:
        yield self.bucket(ctx)

    def bucket(self, ctx: Context) -> "S3Store":
        """Open the store with the operations S3 adds to `Store`."""
        return S3Store(Bucket(self.settings, ctx, self.now), clean(self.settings.get("root", ""), may_be_root=True))

    def now(self) -> float:
        """Return the time to sign requests with, in seconds since 1970."""
        return time.time()

    def check(self, ctx: Context) -> str:
        store = self.bucket(ctx)
        store.page("", None, 1)
        return f"{self.settings['access_key']} can list the bucket {store.bucket.name} at {store.bucket.endpoint}."

    def effect_of(self, action: Action, input: Json) -> Effect:  # noqa: A002 - the contract's word
        is_download = action.name == "presign" and input.get("method", "get") == "get"
        return "read" if is_download else action.effect

    def _copy(self, params: Json, ctx: Context) -> dict[str, Any]:
        source, target = clean(params["path"]), clean(params["to"])
        self.bucket(ctx).copy(source, target)
        return {"path": target}

    def _presign(self, params: Json, ctx: Context) -> dict[str, Any]:
        path, method = clean(params["path"]), params.get("method", "get").upper()
        seconds = params.get("seconds", USUAL_SECONDS)
        return {"url": self.bucket(ctx).presign(method, path, seconds), "method": method, "seconds": seconds}


@dataclass(frozen=True)
class S3Store(Store):
    """Objects whose keys begin with `root`."""

    bucket: Bucket
    root: str

    def page(self, folder: str, after: str | None, limit: int) -> Page:
        entries: list[Entry] = []
        while True:
            batch, next_token = self._list_page(folder, after, min(limit - len(entries), _MAX_PAGE))
            entries += batch
            if next_token is None or len(entries) >= limit:
                break
            if next_token == after:
                raise SystemFailure("The server returned the same page twice; its listing does not end.")
            after = next_token
        if next_token is not None and limit >= MOST_IN_FOLDER:
            raise folder_too_full()
        return Page(sorted(entries, key=lambda each: each.name), next_token)

    def stat(self, path: str) -> Entry | None:
        """Look the object up with a listing, because an error answer to HEAD carries no reason."""
        key = self._key(path)
        for element in self._list_objects(key, 1).iter("Contents"):
            if _key_of(element) == key:
                return _file_entry(element, path)
        return Entry(path, "folder") if self._list_objects(f"{key}/", 1).find("Contents") is not None else None

    def read(self, path: str, most: int) -> bytes:
        headers = (("range", f"bytes=0-{most}"),)
        answer = self.bucket.send(ObjectRequest("GET", self._key(path), headers=headers), "not_done")
        if answer.status == 416:  # The object is empty, so the range has no first byte.
            return b""
        if answer.status not in (200, 206):
            raise self.bucket.refusal(answer, path, "not_done")
        if len(answer.content) > most:
            size = answer.headers.get("content-range", "").rpartition("/")[2]
            raise too_large(path, int(size) if size.isdigit() else len(answer.content), most)
        return answer.content

    def write(self, path: str, content: bytes, key: str) -> None:
        """Write with one request; S3 replaces objects atomically."""
        self._put_object(self._key(path), path, content)

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the bucket, replacing an existing one."""
        origin = (("x-amz-copy-source", quote(f"/{self.bucket.name}/{self._key(source)}")),)
        answer = self.bucket.send(ObjectRequest("PUT", self._key(target), headers=origin), "unknown")
        if answer.status != 200:
            raise self.bucket.refusal(answer, source, "unknown")
        parse_document(answer, "CopyObjectResult", "unknown")  # S3 reports a copy that fails halfway with status 200.

    def move(self, source: str, target: str) -> None:
        """Copy, then delete the source; both exist in between."""
        entry = self.stat(source)
        if entry is None:
            raise Missing(source)
        if entry.kind != "file":
            raise Rejected(f"{source!r} is a folder, which S3 cannot move; move its files one by one.")
        if self.stat(target) is not None:
            raise already_exists(target)
        self.copy(source, target)
        self._delete_object(self._key(source), source)

    def delete(self, path: str) -> bool:
        entry = self.stat(path)
        if entry is None:
            return False
        key = self._key(path)
        if entry.kind == "folder":
            key += "/"
            if [each for each in self._list_objects(key, 2).iter("Contents") if _key_of(each) != key]:
                raise Rejected(f"The folder {path!r} is not empty; empty it first.")
        self._delete_object(key, path)
        return True

    def make_folder(self, path: str) -> bool:
        """Create an empty object whose key ends with a slash, as the services' own consoles do."""
        entry = self.stat(path)
        if entry is None:
            self._put_object(f"{self._key(path)}/", path, b"")
        elif entry.kind != "folder":
            raise already_exists(path)
        return entry is None

    def presign(self, method: str, path: str, seconds: int) -> str:
        """Return a URL that works for anyone who has it."""
        return self.bucket.presign(method, self._key(path), seconds)

    def _key(self, path: str) -> str:
        return join(self.root, path) if path else self.root

    def _put_object(self, key: str, path: str, content: bytes) -> None:
        answer = self.bucket.send(ObjectRequest("PUT", key, content=content), "unknown")
        if answer.status != 200:
            raise self.bucket.refusal(answer, path, "unknown")

    def _delete_object(self, key: str, path: str) -> None:
        answer = self.bucket.send(ObjectRequest("DELETE", key), "unknown")
        if answer.status not in (200, 204, 404):
            raise self.bucket.refusal(answer, path, "unknown")

    def _list_page(self, folder: str, after: str | None, most: int) -> tuple[list[Entry], str | None]:
        """Return some entries of a folder and the token of the next page."""
        key = self._key(folder)
        prefix = f"{key}/" if key else ""
        token = [("continuation-token", after)] if after is not None else []
        listing = self._list_objects(prefix, most, ("delimiter", "/"), *token)
        next_token = listing.findtext("NextContinuationToken") or None
        if listing.findtext("IsTruncated") == "true" and next_token is None:
            raise SystemFailure("The server returned a truncated listing without a continuation token.")
        return [each for element in listing if (each := _to_entry(element, folder, prefix)) is not None], next_token

    def _list_objects(self, prefix: str, most: int, *extra: tuple[str, str]) -> Element:
        """Return the server's listing of keys that begin with `prefix`."""
        query = [("list-type", "2"), ("encoding-type", "url"), ("max-keys", str(most)), ("prefix", prefix), *extra]
        answer = self.bucket.send(ObjectRequest("GET", query=query), "not_done")
        if answer.status != 200:
            raise self.bucket.refusal(answer, prefix, "not_done")
        return parse_document(answer, "ListBucketResult")


def _to_entry(element: Element, folder: str, prefix: str) -> Entry | None:
    """Convert an element of a listing to an entry of the folder; None if it is not directly in the folder."""
    key = _key_of(element)
    name = key.removeprefix(prefix).removesuffix("/")
    if not key.startswith(prefix) or not name or "/" in name or name in (".", ".."):
        return None
    path = join(folder, name)
    return Entry(path, "folder") if element.tag == "CommonPrefixes" else _file_entry(element, path)


def _key_of(element: Element) -> str:
    """Return the key or prefix of an element of a listing, empty for other elements."""
    text = element.findtext({"Contents": "Key", "CommonPrefixes": "Prefix"}.get(element.tag, "nothing"))
    return unquote_plus(text or "")


def _file_entry(element: Element, path: str) -> Entry:
    size = (element.findtext("Size") or "").strip()
    if not size.isdigit():
        raise SystemFailure("The server reported a size that is not a number.")
    return Entry(path, "file", int(size), _parse_time(element.findtext("LastModified")), _parse_etag(element.findtext("ETag")))


def _parse_etag(text: str | None) -> str:
    return (text or "").strip().strip('"')


def _parse_time(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None
