"""Checks whether a content contains an API key; the result is stored, because a content never changes."""

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from peewee import CompositeKey, IntegerField, TextField

from appliance.blobs import Blobs
from appliance.core.database import db
from appliance.core.database.db import TenantModel
from appliance.core.errors import Overloaded, StorageFull
from appliance.core.scope import TenantScope
from appliance.documents.models import DocumentRevision
from appliance.tenants.keys import contains_key

log = logging.getLogger(__name__)
MAX_CACHED = 20_000
WAIT_SECONDS = 10.0  # for another thread that is checking the same content, which can have 2 GiB
Key = tuple[str, str]


class KeyCheckRow(TenantModel):
    """The result of a check of `content`."""

    label = "key check"
    content = TextField()
    holds_key = IntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "content")
        table_name = "document_key_check"


class KeyChecks:
    """Checks contents, caches the results in memory, and stores them for other processes and restarts."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._cache: dict[Key, bool] = {}
        self._running: dict[Key, threading.Event] = {}
        self._lock = threading.Lock()

    def holds_key(self, scope: TenantScope, sha256: str) -> bool:
        """Whether the content contains an API key. Not inside a write. Overloaded while another thread takes long to check it."""
        key = (scope.tenant_id, sha256)
        while (result := self._cache.get(key)) is None:
            with self._claim(key) as is_ours:
                if is_ours:
                    self._cache_result(key, self._load_or_check(scope, sha256))
        return result

    @contextmanager
    def _claim(self, key: Key) -> Iterator[bool]:
        """Yields whether this thread should check the content; if not, another one has just finished or failed."""
        with self._lock:
            other = self._running.get(key)
            if other is None:
                finished = self._running[key] = threading.Event()
        if other is not None:
            if not other.wait(WAIT_SECONDS):
                raise Overloaded("the content is still being checked; try again in a moment", headers={"Retry-After": "10"})
            yield False
            return
        try:
            yield True
        finally:
            with self._lock:
                del self._running[key]
            finished.set()

    def _cache_result(self, key: Key, has_key: bool) -> None:
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[key] = has_key

    def _load_or_check(self, scope: TenantScope, sha256: str) -> bool:
        row = scope.find(KeyCheckRow, content=sha256)
        if row is not None:
            return bool(row.holds_key)
        has_key = contains_key(self._blobs.read(scope, sha256))
        try:
            db.write(lambda: _save(scope, sha256, has_key))
        except StorageFull as error:  # the answer does not depend on whether it can be stored
            log.warning("the result of a key check could not be stored: %s", error.message)
        return has_key


def _save(scope: TenantScope, sha256: str, has_key: bool) -> None:
    """Save the result, unless the last document with the content was deleted in the meantime."""
    if scope.select(DocumentRevision).where(DocumentRevision.sha256 == sha256).exists():
        db.execute(
            "INSERT INTO document_key_check (tenant_id, content, holds_key) VALUES (?, ?, ?) "
            "ON CONFLICT (tenant_id, content) DO NOTHING",
            (scope.tenant_id, sha256, int(has_key)),
        )


def forget_unused(scope: TenantScope, contents: Iterable[str]) -> None:
    """Inside the write that deleted a document: delete the results of contents that no revision uses."""
    for content in contents:
        if not scope.select(DocumentRevision).where(DocumentRevision.sha256 == content).exists():
            scope.delete(KeyCheckRow).where(KeyCheckRow.content == content).execute()
