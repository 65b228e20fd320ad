"""Compresses contents of WebApps as small as can be, once versions with them may be served: that takes a second per MB.

What is to be done is a mark on the row of a content, so that a process that dies leaves it to the next.  A form is added, never
changed: its ETag names one sequence of bytes.
"""

import logging
import os
from collections.abc import Sequence
from functools import partial
from threading import Event, get_native_id

from appliance.blobs import LARGEST, BlobDamaged, Blobs, small_forms
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound, StorageFull
from appliance.core.periodic import Periodic
from appliance.core.scope import TenantScope
from appliance.webapps import versions
from appliance.webapps.models import FormRow, WebAppRow
from appliance.webapps.service import WebApps

from .preparing import IDENTITY, Form

log = logging.getLogger(__name__)
NICENESS = 10
MOST_TOGETHER, SECONDS_TOGETHER = 100, 10.0  # of one app, until what was made is served and the next app has its turn
Made = tuple[str, list[Form]]


class Compression(Periodic):
    """One content after another, of every tenant; `signal` ends it behind the content it is at."""

    def __init__(self, webapps: WebApps, blobs: Blobs) -> None:
        super().__init__("compression", 5.0, self._yield_and_compress)
        self._webapps = webapps
        self._blobs = blobs
        self._stopping = Event()

    def signal(self) -> None:
        self._stopping.set()
        super().signal()

    def _yield_and_compress(self) -> None:
        os.setpriority(os.PRIO_PROCESS, get_native_id(), NICENESS)  # Linux knows a priority for each thread
        self.compress_all()

    def compress_all(self) -> int:
        """Compress all that is to be, a part of each app at a time; answers how many contents."""
        count = 0
        while not self._stopping.is_set() and (apps := _pending_apps()):
            for tenant_id, app_id in apps:
                count += self._compress_some(TenantScope(tenant_id, "system"), app_id)
        return count

    def _compress_some(self, scope: TenantScope, app_id: str) -> int:
        ends = clock.monotonic() + SECONDS_TOGETHER
        made: list[Made] = []
        for content in _pending_contents(scope, app_id):
            if self._stopping.is_set() or clock.monotonic() > ends:
                break
            made.append((content, self._compress(scope, content)))
        if made:
            db.write(partial(self._add, scope, app_id, made))
        return len(made)

    def _compress(self, scope: TenantScope, content: str) -> list[Form]:
        """The forms, stored; none where the content is damaged or gone, or its tenant has no room for them: it is served all the
        same, and is not tried again."""
        try:
            data = self._blobs.read_whole(scope, content, LARGEST)
            stored = [(encoding, self._blobs.put(scope, form)) for encoding, form in small_forms(data)]
            return [Form(content, encoding, each.sha256, each.size) for encoding, each in stored]
        except (BlobDamaged, NotFound, StorageFull) as error:
            told = {"tenant": scope.tenant_id, "sha256": content, "error": error.message}
            log.warning("a content of a WebApp is served as it was compressed first", extra={"fields": told})
            return []

    def _add(self, scope: TenantScope, app_id: str, made: Sequence[Made]) -> None:
        """Inside a write: what has been deleted meanwhile gets no forms."""
        for content, forms in made:
            of_this = (FormRow.app_id == app_id, FormRow.content == content, FormRow.encoding == IDENTITY)
            if scope.update(FormRow, pending=0).where(*of_this).execute():
                versions.insert_forms(scope, self._blobs, app_id, forms)
        scope.update(WebAppRow, forms=WebAppRow.forms + 1).where(WebAppRow.id == app_id).execute()
        self._webapps.tell_after_commit(scope, app_id)


def _pending_apps() -> list[tuple[str, str]]:
    found = db.rows("SELECT DISTINCT tenant_id, app_id FROM webapp_form WHERE pending = 1")
    return [(str(tenant_id), str(app_id)) for tenant_id, app_id in found]


def _pending_contents(scope: TenantScope, app_id: str) -> list[str]:
    rows = scope.select(FormRow, FormRow.content).where(FormRow.app_id == app_id, FormRow.pending == 1)
    return [row.content for row in rows.limit(MOST_TOGETHER)]
