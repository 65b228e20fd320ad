"""Whether a content holds an API key, which nobody else may read: looked at once, since a content never changes."""

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
from appliance.tenants.keys import holds_key

log = logging.getLogger(__name__)
MOST_REMEMBERED = 20_000
WAIT_SECONDS = 10.0  # for who looks at the same content; it has up to 2 GiB
Key = tuple[str, str]


class KeyCheckRow(TenantModel):
    """What was found in `content`."""

    label = "key check"
    content = TextField()
    holds_key = IntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "content")
        table_name = "document_key_check"


class KeyChecks:
    """Looks at contents, remembers what it has seen, and keeps it in rows for other processes and the next start."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._known: dict[Key, bool] = {}
        self._looking: dict[Key, threading.Event] = {}
        self._lock = threading.Lock()

    def holds_key(self, scope: TenantScope, sha256: str) -> bool:
        """Whether the content does; not inside a write.  Overloaded while somebody else takes long to look at it."""
        key = (scope.tenant_id, sha256)
        while (known := self._known.get(key)) is None:
            with self._turn(key) as is_ours:
                if is_ours:
                    self._remember(key, self._found(scope, sha256))
        return known

    @contextmanager
    def _turn(self, key: Key) -> Iterator[bool]:
        """Whether it is for us to look; when it is not, somebody has looked meanwhile or has failed to."""
        with self._lock:
            other = self._looking.get(key)
            if other is None:
                ended = self._looking[key] = threading.Event()
        if other is not None:
            if not other.wait(WAIT_SECONDS):
                raise Overloaded("the content is still being looked at; try again in a moment", headers={"Retry-After": "10"})
            yield False
            return
        try:
            yield True
        finally:
            with self._lock:
                del self._looking[key]
            ended.set()

    def _remember(self, key: Key, found: bool) -> None:
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[key] = found

    def _found(self, scope: TenantScope, sha256: str) -> bool:
        row = scope.find(KeyCheckRow, content=sha256)
        if row is not None:
            return bool(row.holds_key)
        found = holds_key(self._blobs.read(scope, sha256))
        try:
            db.write(lambda: _keep(scope, sha256, found))
        except StorageFull as error:  # what may leave does not depend on whether we can note it
            log.warning("that a content was looked at is not noted: %s", error.message)
        return found


def _keep(scope: TenantScope, sha256: str, found: bool) -> None:
    """Nothing when the last document was deleted meanwhile."""
    if scope.select(DocumentRevision).where(DocumentRevision.sha256 == sha256).exists():
        db.execute(
            "INSERT INTO document_key_check (tenant_id, content, holds_key) VALUES (?, ?, ?) "
            "ON CONFLICT (tenant_id, content) DO NOTHING",
            (scope.tenant_id, sha256, int(found)),
        )


def forget_unused(scope: TenantScope, contents: Iterable[str]) -> None:
    """Inside the write that has deleted a document: what was found in contents that no revision has any more."""
    for content in contents:
        if not scope.select(DocumentRevision).where(DocumentRevision.sha256 == content).exists():
            scope.delete(KeyCheckRow).where(KeyCheckRow.content == content).execute()
