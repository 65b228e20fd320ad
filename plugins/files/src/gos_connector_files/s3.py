"""S3 and what speaks like it: objects of a bucket as files, `/` in their names as folders."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import quote, unquote_plus
from xml.etree.ElementTree import Element

from appliance.connectors.contract import Action, Context, Effect, Json, Rejected, SystemFailure
from gos_connector_files.bucket import Asked, Bucket, document
from gos_connector_files.connector import FilesConnector
from gos_connector_files.declaration import BUCKET_ACTIONS, USUAL_SECONDS
from gos_connector_files.path import clean, join
from gos_connector_files.store import MOST_IN_FOLDER, Entry, Missing, Page, Store, in_the_way, too_full, too_large

_AT_ONCE = 1000


class S3Connector(FilesConnector):
    """A bucket, or what lies below one folder of it."""

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
                "description": "The folder that all paths are below; empty for the whole bucket",
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
        """The place with all that S3 can do beyond a `Store`."""
        return S3Store(Bucket(self.settings, ctx, self.now), clean(self.settings.get("root", ""), may_be_root=True))

    def now(self) -> float:
        """The time that requests are signed with, in seconds since 1970."""
        return time.time()

    def check(self, ctx: Context) -> str:
        store = self.bucket(ctx)
        store.page("", None, 1)
        return f"{store.bucket.endpoint} shows the bucket {store.bucket.name} to {self.settings['access_key']}."

    def effect_of(self, action: Action, input: Json) -> Effect:  # noqa: A002 - the contract's word
        only_reads = action.name == "presign" and input.get("method", "get") == "get"
        return "read" if only_reads else action.effect

    def _copy(self, given: Json, ctx: Context) -> dict[str, Any]:
        source, target = clean(given["path"]), clean(given["to"])
        self.bucket(ctx).copy(source, target)
        return {"path": target}

    def _presign(self, given: Json, ctx: Context) -> dict[str, Any]:
        path, method = clean(given["path"]), given.get("method", "get").upper()
        seconds = given.get("seconds", USUAL_SECONDS)
        return {"url": self.bucket(ctx).presigned(method, path, seconds), "method": method, "seconds": seconds}


@dataclass(frozen=True)
class S3Store(Store):
    """Objects whose names begin with `root`."""

    bucket: Bucket
    root: str

    def page(self, folder: str, after: str | None, limit: int) -> Page:
        entries: list[Entry] = []
        while True:
            found, following = self._list(folder, after, min(limit - len(entries), _AT_ONCE))
            entries += found
            if following is None or len(entries) >= limit:
                break
            if following == after:
                raise SystemFailure("The server's list does not come to an end.")
            after = following
        if following is not None and limit >= MOST_IN_FOLDER:
            raise too_full()
        return Page(sorted(entries, key=lambda each: each.name), following)

    def stat(self, path: str) -> Entry | None:
        """By a list, whose refusals say why; to HEAD no reason can be given."""
        key = self._key(path)
        for found in self._ask(key, 1).iter("Contents"):
            if _key_of(found) == key:
                return _file(found, path)
        return Entry(path, "folder") if self._ask(f"{key}/", 1).find("Contents") is not None else None

    def read(self, path: str, most: int) -> bytes:
        headers = (("range", f"bytes=0-{most}"),)
        answer = self.bucket.send(Asked("GET", self._key(path), headers=headers), "not_done")
        if answer.status == 416:  # there is no first byte
            return b""
        if answer.status not in (200, 206):
            raise self.bucket.refusal(answer, path, "not_done")
        if len(answer.content) > most:
            size = answer.headers.get("content-range", "").rpartition("/")[2]
            raise too_large(path, int(size) if size.isdigit() else len(answer.content), most)
        return answer.content

    def write(self, path: str, content: bytes, key: str) -> None:
        """One request: an object is replaced at once or not at all."""
        self._put(self._key(path), path, content)

    def copy(self, source: str, target: str) -> None:
        """A file under a second name, in place of what is there."""
        origin = (("x-amz-copy-source", quote(f"/{self.bucket.name}/{self._key(source)}")),)
        answer = self.bucket.send(Asked("PUT", self._key(target), headers=origin), "unknown")
        if answer.status != 200:
            raise self.bucket.refusal(answer, source, "unknown")
        document(answer, "CopyObjectResult", "unknown")  # a copy that fails half-way is told so under status 200

    def move(self, source: str, target: str) -> None:
        """A copy and then a deletion: between them there are both."""
        found = self.stat(source)
        if found is None:
            raise Missing(source)
        if found.kind != "file":
            raise Rejected(f"{source!r} is a folder, which is only the beginning of many names; move its files.")
        if self.stat(target) is not None:
            raise in_the_way(target)
        self.copy(source, target)
        self._remove(self._key(source), source)

    def delete(self, path: str) -> bool:
        found = self.stat(path)
        if found is None:
            return False
        key = self._key(path)
        if found.kind == "folder":
            key += "/"
            if [each for each in self._ask(key, 2).iter("Contents") if _key_of(each) != key]:
                raise Rejected(f"The folder {path!r} is not empty; empty it first.")
        self._remove(key, path)
        return True

    def make_folder(self, path: str) -> bool:
        """An empty object whose name ends with a slash, as the consoles of such services make it."""
        found = self.stat(path)
        if found is None:
            self._put(f"{self._key(path)}/", path, b"")
        elif found.kind != "folder":
            raise in_the_way(path)
        return found is None

    def presigned(self, method: str, path: str, seconds: int) -> str:
        """An address that works for anybody who has it."""
        return self.bucket.presigned(method, self._key(path), seconds)

    def _key(self, path: str) -> str:
        return join(self.root, path) if path else self.root

    def _put(self, key: str, path: str, content: bytes) -> None:
        answer = self.bucket.send(Asked("PUT", key, content=content), "unknown")
        if answer.status != 200:
            raise self.bucket.refusal(answer, path, "unknown")

    def _remove(self, key: str, path: str) -> None:
        answer = self.bucket.send(Asked("DELETE", key), "unknown")
        if answer.status not in (200, 204, 404):
            raise self.bucket.refusal(answer, path, "unknown")

    def _list(self, folder: str, after: str | None, most: int) -> tuple[list[Entry], str | None]:
        """Some entries of a folder and the token of the next."""
        key = self._key(folder)
        prefix = f"{key}/" if key else ""
        told = self._ask(prefix, most, ("delimiter", "/"), *([("continuation-token", after)] if after is not None else []))
        following = told.findtext("NextContinuationToken") or None
        if told.findtext("IsTruncated") == "true" and following is None:
            raise SystemFailure("The server's list has more and does not say where it goes on.")
        return [each for found in told if (each := _listed(found, folder, prefix)) is not None], following

    def _ask(self, prefix: str, most: int, *further: tuple[str, str]) -> Element:
        """What the server lists of the names that begin with `prefix`."""
        query = [("list-type", "2"), ("encoding-type", "url"), ("max-keys", str(most)), ("prefix", prefix), *further]
        answer = self.bucket.send(Asked("GET", query=query), "not_done")
        if answer.status != 200:
            raise self.bucket.refusal(answer, prefix, "not_done")
        return document(answer, "ListBucketResult")


def _listed(found: Element, folder: str, prefix: str) -> Entry | None:
    """An element of a list as an entry of the folder; None for what is none."""
    key = _key_of(found)
    name = key.removeprefix(prefix).removesuffix("/")
    if not key.startswith(prefix) or not name or "/" in name or name in (".", ".."):
        return None
    path = join(folder, name)
    return Entry(path, "folder") if found.tag == "CommonPrefixes" else _file(found, path)


def _key_of(found: Element) -> str:
    """The name that an element of a list stands for, empty for one that is none."""
    text = found.findtext({"Contents": "Key", "CommonPrefixes": "Prefix"}.get(found.tag, "nothing"))
    return unquote_plus(text or "")


def _file(found: Element, path: str) -> Entry:
    size = (found.findtext("Size") or "").strip()
    if not size.isdigit():
        raise SystemFailure("The server tells a size that is no number.")
    return Entry(path, "file", int(size), _moment(found.findtext("LastModified")), _tag(found.findtext("ETag")))


def _tag(text: str | None) -> str:
    return (text or "").strip().strip('"')


def _moment(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None
