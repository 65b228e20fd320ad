"""Deletes a tenant in the middle of a request."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from appliance.core.database.write_guards import GuardedRequest, guarding
from appliance.core.database.writers import Job, Writers
from appliance.tenants import service


@contextmanager
def deleted_before_a_write(tenant_id: str) -> Iterator[threading.Event]:
    """Inside the block, the tenant is deleted before the next write that a request makes; yields whether that has happened."""
    submit, is_deleted = Writers.submit, threading.Event()

    def delete_first(self: Writers, job: Job) -> None:
        if threading.current_thread().name.startswith("api") and not is_deleted.is_set():
            is_deleted.set()
            with guarding(GuardedRequest()):  # by somebody else, not by the request
                service.delete_tenant(tenant_id, force=True)
        submit(self, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writers, "submit", delete_first)
        yield is_deleted
