"""Bounded work: the number of running and waiting callers and the time they wait are limited."""

import threading
import time
from pathlib import Path

import pytest

from appliance.blobs import Blobs, LocalPlaces
from appliance.core.crypto import Sealer
from appliance.core.errors import Overloaded
from appliance.core.scope import TenantScope
from appliance.documents.bounded_work import BoundedWork
from appliance.documents.contents import scanning
from appliance.documents.contents.scanning import ScannedBlobs, Scanner
from appliance.documents.service import BLOB_TABLES, Documents, NewDocument
from appliance.documents.sharing import shares
from appliance.documents.sharing.delivery import DeliveryPolicy
from appliance.documents.sharing.downloads import Origin
from appliance.documents.sharing.shares import NewShare, Shares
from tests.documents.test_shares import FakeReviews


def test_a_few_callers_wait_and_others_are_refused() -> None:
    slots, barrier, waited = BoundedWork("the mill", 2, 1, 60), threading.Barrier(3), list[bool]()
    may_end = threading.Event()

    def work() -> None:
        with slots.slot():
            barrier.wait(30)
            assert may_end.wait(30)

    def wait() -> None:
        with slots.slot():
            waited.append(may_end.is_set())

    working = [threading.Thread(target=work) for _ in range(2)]
    for each in working:
        each.start()
    barrier.wait(30)
    waiting = threading.Thread(target=wait)
    waiting.start()
    try:
        ends = time.monotonic() + 20
        while slots._admitted.acquire(blocking=False):  # until it waits
            slots._admitted.release()
            assert time.monotonic() < ends
            threading.Event().wait(0.01)
        with pytest.raises(Overloaded, match="the mill") as refused, slots.slot():
            pass
        assert refused.value.headers == {"Retry-After": "5"}
    finally:
        may_end.set()
        for each in (*working, waiting):
            each.join(30)
    assert waited == [True]
    with slots.slot(), slots.slot():
        pass


def test_waiting_is_limited() -> None:
    slots = BoundedWork("the mill", 1, 1, 0.01)
    with slots.slot():
        for _ in range(3):
            with pytest.raises(Overloaded), slots.slot():
                pass


def test_a_busy_scanner_and_busy_passwords_are_reported(
    documents: Documents, blobs: Blobs, acme: TenantScope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = LocalPlaces(tmp_path / "scanned")
    scanned = ScannedBlobs(places, BLOB_TABLES, Scanner(["/bin/true"], 30, "quarantine"))
    sharing = Shares(DeliveryPolicy(blobs, FakeReviews()), Sealer(b"k" * 32))
    document_id = documents.store_document(acme, NewDocument("a.txt"), b"one").id
    _, token = sharing.create_share(acme, document_id, NewShare(password="a good sentence"))
    with monkeypatch.context() as patched:
        busy = BoundedWork("the test", 1, 0, 0)
        patched.setattr(scanning, "_running", busy)
        patched.setattr(shares, "_hashing", busy)
        opened = sharing.open_share(acme, token)
        assert opened is not None
        with busy.slot():
            with pytest.raises(Overloaded, match="the test"):
                scanned.put(acme, b"two")
            with pytest.raises(Overloaded, match="the test"):
                sharing.create_share(acme, document_id, NewShare(password="a good sentence"))
            assert sharing.verify_password(acme, opened, "a good sentence", Origin("", "")), "others bound how many are checked"
    assert not list((tmp_path / "scanned" / "incoming").iterdir())
    assert scanned.put(acme, b"two").size == 3
