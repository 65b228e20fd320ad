"""Retained documents and those under a legal hold stay; folder rules delete the others in time."""

from collections.abc import Callable

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.events import hub
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents import folder_rules, retention
from appliance.documents.folder_rules import FolderRule
from appliance.documents.retention import DAY, DocumentKept
from appliance.documents.service import Changes, DocumentChanged, DocumentFilter, Documents, NewDocument
from appliance.documents.upkeep import delete_overdue
from appliance.tenants import service as tenants


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Milliseconds by which the clock is ahead."""
    ahead, now = [0], clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now() + ahead[0])
    return ahead


def assert_kept(*attempts: Callable[[], object]) -> None:
    for attempt in attempts:
        with pytest.raises(DocumentKept) as caught:
            attempt()
        assert (caught.value.code, caught.value.status) == ("document_kept", 409)


def test_a_retained_document_cannot_be_deleted_or_moved(
    documents: Documents, acme: TenantScope, globex: TenantScope, later: list[int]
) -> None:
    document_id = documents.store_document(acme, NewDocument("a.txt", None, "contracts"), b"one").id
    documents.store_document(acme, NewDocument("b.txt", None, "contracts"), b"two")
    assert retention.get_retention(acme, document_id).hold is None
    retained = retention.set_hold(acme, document_id, "a lawsuit")
    assert retained.hold is not None
    assert (retained.hold.reason, retained.hold.held_by) == ("a lawsuit", "key:acme")
    attempts: tuple[Callable[[], object], ...] = (
        lambda: documents.delete_document(acme, document_id),
        lambda: documents.update_document(acme, document_id, Changes(folder="elsewhere")),
        lambda: documents.move_folder(acme, "contracts", "elsewhere"),
    )
    assert_kept(*attempts)
    assert {each.folder for each in documents.list_documents(acme, DocumentFilter(), PageRequest()).items} == {"contracts"}
    documents.update_document(acme, document_id, Changes(name="renamed.txt", folder="contracts"))
    documents.add_revision(acme, document_id, documents.store_content(acme, b"three"))
    retention.set_retention(acme, document_id, clock.now_ms() + DAY)
    retention.release_hold(acme, document_id)
    assert_kept(*attempts)
    foreigners: tuple[Callable[[], object], ...] = (
        lambda: retention.get_retention(globex, document_id),
        lambda: retention.set_hold(globex, document_id, "ours"),
        lambda: retention.set_retention(globex, document_id, None),
        lambda: retention.release_hold(globex, document_id),
        lambda: retention.release_hold(acme, document_id),
    )
    for foreign in foreigners:
        with pytest.raises(NotFound):
            foreign()
    wrongs: tuple[Callable[[], object], ...] = (
        lambda: retention.set_hold(acme, document_id, " "),
        lambda: retention.set_retention(acme, document_id, clock.now_ms() - 1),
        lambda: retention.set_retention(acme, document_id, clock.now_ms() + 40_000 * DAY),
    )
    for wrong in wrongs:
        with pytest.raises(ValidationFailed):
            wrong()
    later[0] = DAY + 1
    for attempt in reversed(attempts[:2]):
        attempt()
    actions = [row[0] for row in db.rows("SELECT action FROM audit_entry WHERE tenant_id = 'acme' ORDER BY seq")]
    retaining = ["document.hold", "document.change", "document.retain", "document.release"]
    assert actions == [*retaining, "document.change", "document.delete"]


@pytest.mark.usefixtures("deletions")
def test_a_tenant_with_retained_documents_cannot_be_deleted(documents: Documents, acme: TenantScope) -> None:
    document_id = documents.store_document(acme, NewDocument("a.txt"), b"one").id
    retention.set_hold(acme, document_id, "a lawsuit")
    assert_kept(lambda: tenants.delete_tenant("acme"))
    retention.release_hold(acme, document_id)
    retention.set_retention(acme, document_id, clock.now_ms() + DAY)
    assert_kept(lambda: tenants.delete_tenant("acme"))
    assert documents.get_document(acme, document_id).name == "a.txt"
    tenants.delete_tenant("globex")
    tenants.delete_tenant("acme", force=True)
    assert db.rows("SELECT count(*) FROM document") == [(0,)]


def test_the_nearest_folder_rule_deletes_documents(
    documents: Documents, acme: TenantScope, globex: TenantScope, later: list[int]
) -> None:
    def store(scope: TenantScope, folder: str) -> str:
        return documents.store_document(scope, NewDocument("a.txt", None, folder), folder.encode()).id

    in_root, short, long, beside, on_hold = (store(acme, name) for name in ("", "tmp", "tmp/keep/it", "tmp2", "tmp/held"))
    foreign = store(globex, "tmp")
    folder_rules.put_rule(acme, FolderRule("tmp", delete_after_days=1))
    folder_rules.put_rule(acme, FolderRule("tmp/keep", delete_after_days=10))
    folder_rules.put_rule(acme, FolderRule("tmp/keep/it", "required"))
    retention.set_hold(acme, on_hold, "a lawsuit")

    def remaining() -> set[str]:
        return {row[0] for row in db.rows("SELECT id FROM document")}

    assert delete_overdue(documents) == 0
    later[0] = DAY + 1
    assert delete_overdue(documents) == 1
    assert remaining() == {in_root, long, beside, on_hold, foreign}
    later[0] = 10 * DAY + 1
    documents.add_revision(acme, beside, documents.store_content(acme, b"new"))
    folder_rules.put_rule(acme, FolderRule("", delete_after_days=5))
    assert delete_overdue(documents) == 2
    assert remaining() == {beside, on_hold, foreign}
    retention.release_hold(acme, on_hold)
    assert delete_overdue(documents) == 1
    expired = db.rows("SELECT subject FROM audit_entry WHERE action = 'document.expire' ORDER BY seq")
    assert {row[0] for row in expired} == {short, long, in_root, on_hold}


def test_a_document_that_is_no_longer_overdue_stays(documents: Documents, acme: TenantScope, later: list[int]) -> None:
    """Between the listing and the deletion of overdue documents, a listener changes the remaining ones."""
    folders = ("tmp", "tmp", "tmp", "tmp/kept")
    created = [documents.store_document(acme, NewDocument(f"{n}.txt", None, folder), b"one").id for n, folder in enumerate(folders)]
    revised, moved, described, ruled = created
    first = documents.store_document(acme, NewDocument("first.txt", None, "first"), b"one").id
    folder_rules.put_rule(acme, FolderRule("first", delete_after_days=1))
    folder_rules.put_rule(acme, FolderRule("tmp", delete_after_days=1))
    later[0] = DAY + 1
    content = documents.store_content(acme, b"new")

    def change(changed: DocumentChanged) -> None:
        if changed.document.id == first and changed.event == "deleted":
            documents.add_revision(acme, revised, content)
            documents.update_document(acme, moved, Changes(folder="free"))
            documents.update_document(acme, described, Changes(tags=("seen",)))
            folder_rules.put_rule(acme, FolderRule("tmp/kept", delete_after_days=1000))

    withdraw = hub.subscribe(DocumentChanged, change)
    try:
        assert delete_overdue(documents) == 1
    finally:
        withdraw()
    assert {row[0] for row in db.rows("SELECT id FROM document")} == {revised, moved, described, ruled}
    assert delete_overdue(documents) == 1
    assert {row[0] for row in db.rows("SELECT id FROM document")} == {revised, moved, ruled}


def test_an_invalid_rule_is_refused(documents: Documents, acme: TenantScope, globex: TenantScope) -> None:
    rule = folder_rules.put_rule(acme, FolderRule("/a/b/", "required", 3))
    assert (rule.folder, rule.review, rule.delete_after_days, rule.updated_by) == ("a/b", "required", 3, "key:acme")
    assert folder_rules.put_rule(acme, FolderRule("a/b", "none")).delete_after_days is None
    assert len(folder_rules.list_rules(acme)) == 1
    assert folder_rules.list_rules(globex) == []
    for wrong in (FolderRule("../a"), FolderRule("a", "none", 0)):
        with pytest.raises(ValidationFailed):
            folder_rules.put_rule(acme, wrong)
    with pytest.raises(NotFound):
        folder_rules.delete_rule(globex, "a/b")
    folder_rules.delete_rule(acme, "a/b")
