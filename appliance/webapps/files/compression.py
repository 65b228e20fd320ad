"""Compresses published contents with the strongest (slow) compression, about one second per MB.

Pending work is marked on the row of a content, so another process continues after a crash. An encoded form is added but never
changed, because its ETag identifies one sequence of bytes.
"""

import logging
from collections.abc import Sequence
from functools import partial
from threading import Event

from appliance.blobs import LARGEST, BlobDamaged, Blobs, small_forms
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound, StorageFull
from appliance.core.scheduling import BACKGROUND, PeriodicJob
from appliance.core.scope import TenantScope
from appliance.webapps import changes, versions
from appliance.webapps.models import FormRow, WebAppRow

from .preparation import IDENTITY, EncodedForm

log = logging.getLogger(__name__)
MAX_CONTENTS, MAX_SECONDS = 100, 10.0  # per app, before the results are served and the next app is processed
Compressed = tuple[str, list[EncodedForm]]


class Compression(PeriodicJob):
    """Compresses the contents of every tenant one by one; `signal` ends it after the current content."""

    def __init__(self, blobs: Blobs) -> None:
        super().__init__("compression", 5.0, self.compress_all, BACKGROUND)
        self._blobs = blobs
        self._stopping = Event()

    def signal(self) -> None:
        self._stopping.set()
        super().signal()

    def compress_all(self) -> int:
        """Compress everything pending, a batch per app at a time; returns the number of contents."""
        count = 0
        while not self._stopping.is_set() and (apps := _pending_apps()):
            for tenant_id, app_id in apps:
                count += self._compress_batch(TenantScope(tenant_id, "system"), app_id)
        return count

    def _compress_batch(self, scope: TenantScope, app_id: str) -> int:
        deadline = clock.monotonic() + MAX_SECONDS
        compressed: list[Compressed] = []
        for content in _pending_contents(scope, app_id):
            if self._stopping.is_set() or clock.monotonic() > deadline:
                break
            compressed.append((content, self._compress(scope, content)))
        if compressed:
            db.write(partial(self._save, scope, app_id, compressed))
        return len(compressed)

    def _compress(self, scope: TenantScope, content: str) -> list[EncodedForm]:
        """Compress and store one content. Returns no forms when it is damaged, deleted, or the tenant is out of space: it is
        then served as it is, and not tried again."""
        try:
            data = self._blobs.read_whole(scope, content, LARGEST)
            stored = [(encoding, self._blobs.put(scope, form)) for encoding, form in small_forms(data)]
            return [EncodedForm(content, encoding, each.sha256, each.size) for encoding, each in stored]
        except (BlobDamaged, NotFound, StorageFull) as error:
            fields = {"tenant": scope.tenant_id, "sha256": content, "error": error.message}
            log.warning("a content of a WebApp could not be compressed further", extra={"fields": fields})
            return []

    def _save(self, scope: TenantScope, app_id: str, compressed: Sequence[Compressed]) -> None:
        """Inside a write; contents that were deleted in the meantime are skipped."""
        for content, forms in compressed:
            of_content = (FormRow.app_id == app_id, FormRow.content == content, FormRow.encoding == IDENTITY)
            if scope.update(FormRow, pending=0).where(*of_content).execute():
                versions.insert_forms(scope, self._blobs, app_id, forms)
        scope.update(WebAppRow, forms=WebAppRow.forms + 1).where(WebAppRow.id == app_id).execute()
        changes.notify_after_commit(scope, app_id)


def _pending_apps() -> list[tuple[str, str]]:
    rows = db.rows("SELECT DISTINCT tenant_id, app_id FROM webapp_form WHERE pending = 1")
    return [(str(tenant_id), str(app_id)) for tenant_id, app_id in rows]


def _pending_contents(scope: TenantScope, app_id: str) -> list[str]:
    rows = scope.select(FormRow, FormRow.content).where(FormRow.app_id == app_id, FormRow.pending == 1)
    return [row.content for row in rows.limit(MAX_CONTENTS)]
