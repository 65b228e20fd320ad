"""Previews are rendered once per content, page and width, deleted with the content, and isolated between tenants."""

import io
import threading
from pathlib import Path

import pytest
from PIL import Image

from appliance.blobs import GRACE_MS, Blobs
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound, Overloaded
from appliance.core.scope import TenantScope
from appliance.documents.contents import previews, scanning
from appliance.documents.contents.previews import PreviewFailed, Previews
from appliance.documents.contents.quarantine import Quarantined
from appliance.documents.service import Documents, NewDocument
from appliance.formats import Formats, Settings
from appliance.tenants import service as tenants

on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Formats:
    return Formats(Settings(tmp_path_factory.mktemp("formats"), processes=2))


@pytest.fixture
def renderer(blobs: Blobs, formats: Formats, documents: Documents) -> Previews:
    return Previews(blobs, formats, documents)


@pytest.fixture
def cached_previews(blobs: Blobs, documents: Documents, tmp_path: Path) -> Previews:
    """Previews whose worker cannot start: every result comes from the store."""
    (tmp_path / "blocked").write_bytes(b"")
    return Previews(blobs, Formats(Settings(tmp_path / "blocked")), documents)


def png(width: int = 400, height: int = 200) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(out, "PNG")
    return out.getvalue()


def store(documents: Documents, scope: TenantScope, name: str, data: bytes) -> str:
    return documents.store_document(scope, NewDocument(name), data).id


def rows() -> int:
    return int(db.rows("SELECT count(*) FROM document_preview")[0][0])


@pytest.mark.usefixtures("deletions")
def test_a_preview_is_stored_and_deleted_with_its_last_document(
    documents: Documents, renderer: Previews, cached_previews: Previews, blobs: Blobs, acme: TenantScope, globex: TenantScope,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    first, second = store(documents, acme, "a.png", png()), store(documents, acme, "b.png", png())
    preview = renderer.get_preview(acme, first, 1, 160)
    assert Image.open(io.BytesIO(preview.data)).size == (160, 80)
    assert cached_previews.get_preview(acme, second, 1, 160) == preview
    with pytest.raises(NotFound):
        renderer.get_preview(globex, first, 1, 160)
    theirs = store(documents, globex, "c.png", png())
    with pytest.raises(FileExistsError):
        cached_previews.get_preview(globex, theirs, 1, 160)
    renderer.get_preview(globex, theirs, 1, 160)
    later = clock.now_ms() + 2 * GRACE_MS
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    blobs.collect()
    documents.delete_document(acme, first)
    assert cached_previews.get_preview(acme, second, 1, 160) == preview, "its blob is referred to"
    documents.delete_document(acme, second)
    assert rows() == 1
    tenants.delete_tenant("globex")
    assert rows() == 0
    monkeypatch.setattr(clock, "now_ms", lambda: later + 2 * GRACE_MS)
    blobs.collect()
    assert db.rows("SELECT count(*) FROM blob") == [(0,)]


@on_sqlite
def test_some_types_are_never_rendered(documents: Documents, cached_previews: Previews, acme: TenantScope) -> None:
    for name, data in (
        ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"), ("a.html", b"<html><script>1</script>"), ("a.txt", b"plain"),
        ("a.png", b"<svg onload='alert(1)'/>"), ("a.bin", b"\x00\x01"), ("a.bmp", b"BMW and other cars"),
    ):  # fmt: skip
        with pytest.raises(NotFound, match="have no preview"):
            cached_previews.get_preview(acme, store(documents, acme, name, data), 1, 160)
    picture = store(documents, acme, "b.png", png())
    for page, revision in ((2, 1), (0, 1), (1, 2)):
        with pytest.raises(NotFound):
            cached_previews.get_preview(acme, picture, page, 160, revision)


@on_sqlite
def test_a_refusal_is_stored_and_a_missing_page_is_not(
    documents: Documents, renderer: Previews, cached_previews: Previews, acme: TenantScope
) -> None:
    broken = store(documents, acme, "a.pdf", b"%PDF-1.7 nothing")
    for each in (renderer, cached_previews):
        with pytest.raises(PreviewFailed, match="not a readable PDF") as caught:
            each.get_preview(acme, broken, 1, 160)
        assert caught.value.extra == {"reason": "content_invalid"}
    out = io.BytesIO()
    Image.new("RGB", (30, 40)).save(out, "PDF")
    whole = store(documents, acme, "b.pdf", out.getvalue())
    with pytest.raises(NotFound, match="no page 2"):
        renderer.get_preview(acme, whole, 2, 160)
    assert rows() == 1
    renderer.get_preview(acme, whole, 1, 160)


@on_sqlite
def test_quarantine_applies_to_an_existing_preview(documents: Documents, renderer: Previews, acme: TenantScope) -> None:
    document_id = store(documents, acme, "a.png", png())
    renderer.get_preview(acme, document_id, 1, 160)
    sha256 = documents.get_document(acme, document_id).sha256
    db.write(lambda: scanning._set_state(acme, sha256, "quarantined", "strange"))
    with pytest.raises(Quarantined):
        renderer.get_preview(acme, document_id, 1, 160)
    free = store(documents, acme, "b.png", png(40, 20))
    listed = [documents.get_document(acme, each) for each in (document_id, free)]
    assert previews.documents_with_preview(acme, listed, 160) == {free}


@on_sqlite
def test_previews_render_one_at_a_time(
    documents: Documents, renderer: Previews, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    document_id = store(documents, acme, "a.png", png())
    monkeypatch.setattr(previews, "WAIT_SECONDS", 0.01)
    with renderer._lock, pytest.raises(Overloaded):
        renderer.get_preview(acme, document_id, 1, 160)
    renderer._waiting = threading.BoundedSemaphore(1)
    with renderer._waiting, pytest.raises(Overloaded):
        renderer.get_preview(acme, document_id, 1, 160)
    renderer.get_preview(acme, document_id, 1, 160)


@on_sqlite
def test_a_document_deleted_in_the_meantime_leaves_nothing(
    documents: Documents, renderer: Previews, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    document_id = store(documents, acme, "a.png", png())
    painted = Previews._run_worker

    def perform(self: Previews, *args: object) -> bytes:
        data = painted(self, *args)  # type: ignore[arg-type]
        documents.delete_document(acme, document_id)
        return data

    monkeypatch.setattr(Previews, "_run_worker", perform)
    with pytest.raises(NotFound):
        renderer.get_preview(acme, document_id, 1, 160)
    assert rows() == 0
