"""One tenant or one document out of a backup, also if the rest of it is damaged, and what a backup contains."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.backups.creation import CONTENTS, DATABASE
from appliance.backups.extraction import DocumentRequest, describe_backup, extract_document, extract_tenant
from appliance.backups.importing import ImportRequest, SecretReplacement
from appliance.backups.parts import MANIFEST, new_file, parse_manifest, parts_of
from appliance.backups.problems import BackupInvalid
from appliance.backups.tenant_exports import export_tenant
from appliance.backups.tenant_imports import import_tenant
from appliance.backups.verification import verify_backup
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, NotFound
from appliance.core.scope import TenantScope
from appliance.documents import service as documents
from appliance.tenants import service
from tests.backups.conftest import CANARY, PASSPHRASE, World, make_world

LARGE = os.urandom(3 << 20)  # cannot be compressed, so that the end of the file is in it


def add_document(world: World, scope: TenantScope, content: bytes) -> str:
    stored = world.blobs.put(scope, content)
    created = documents.Documents(world.incoming).create_document(scope, documents.NewDocument("large.bin"), stored)
    return str(created.id)


def add_revision(world: World, scope: TenantScope, document_id: str, content: bytes) -> None:
    documents.Documents(world.incoming).add_revision(scope, document_id, world.blobs.put(scope, content))


@pytest.fixture
def filled(world: World) -> Iterator[World]:
    """Two tenants; the contents of `hooli` come first in a backup."""
    with world.opened():
        world.fill()
        yield world


def back_up(world: World, path: Path, passphrase: str | None = PASSPHRASE) -> Path:
    world.backup(path, passphrase)
    return path


def rewrite(path: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """An unencrypted backup with changed parts, of their size."""
    with parts_of(path, None) as parts, new_file(target, None) as written:
        for part in parts:
            content = change(part.name, b"".join(part.pieces))
            if part.name == MANIFEST:
                written.finish(parse_manifest(content))
            else:
                written.add_bytes(part.name, content)
    return target


def import_into(folder: Path, path: Path, name: str, passphrase: str | None) -> World:
    world = make_world(folder)
    with world.opened():
        sealer = Sealer(load_or_make_key(world.config.data / "key"))
        import_tenant(world.places, SecretReplacement(sealer), ImportRequest(path, passphrase, name), world.config.data)
    return world


@pytest.mark.parametrize("passphrase", [PASSPHRASE, None], ids=["encrypted", "plain"])
def test_a_tenant_is_taken_out_as_it_would_have_been_exported(filled: World, tmp_path: Path, passphrase: str | None) -> None:
    exported = export_tenant(service.system_scope("initech"), filled.places, tmp_path / "exported.gost", None)
    path, target = back_up(filled, tmp_path / "whole.gosb", passphrase), tmp_path / "taken.gost"
    db.close_database()
    manifest = extract_tenant(path, passphrase, "initech", target)
    same = ("schema", "tenant", "people", "secrets", "domains", "contents")
    assert {name: manifest[name] for name in same} == {name: exported[name] for name in same}
    tables = {name: count for name, count in manifest["tables"].items() if name != "audit_entry"}
    assert tables == {name: count for name, count in exported["tables"].items() if name != "audit_entry"}
    assert manifest["made_at"] == describe_backup(path, passphrase).made_at
    assert CANARY.encode() not in target.read_bytes()
    assert [each.suffix for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    restored = import_into(tmp_path / "other", target, "again", passphrase)
    with restored.opened():
        scope = service.system_scope("again")
        ((sha256,),) = db.rows("SELECT sha256 FROM document WHERE tenant_id = 'again'")
        assert restored.blobs.read_whole(scope, sha256, 1 << 20) == b"the text of initech" * 1000
        assert [tenant.id for tenant in service.list_tenants()] == ["again"]


def test_an_unknown_tenant_and_an_existing_file_are_refused(filled: World, tmp_path: Path) -> None:
    path = back_up(filled, tmp_path / "whole.gosb")
    with pytest.raises(NotFound, match="no tenant 'nobody'; it has hooli, initech"):
        extract_tenant(path, PASSPHRASE, "nobody", tmp_path / "x.gost")
    with pytest.raises(AlreadyExists):
        extract_tenant(path, PASSPHRASE, "initech", path)
    with pytest.raises(BackupInvalid, match="passphrase"):
        extract_tenant(path, "another passphrase", "initech", tmp_path / "x.gost")
    assert [each.name for each in tmp_path.iterdir() if each.name != "data"] == ["whole.gosb"]


def test_a_backup_that_ends_early_still_gives_what_is_before(filled: World, tmp_path: Path) -> None:
    hooli, initech = service.system_scope("hooli"), service.system_scope("initech")
    lost = add_document(filled, initech, LARGE)
    ((document_id,),) = db.rows("SELECT id FROM document WHERE tenant_id = ?", (hooli.tenant_id,))
    path = back_up(filled, tmp_path / "whole.gosb")
    cut = tmp_path / "cut.gosb"
    cut.write_bytes(path.read_bytes()[: -(2 << 20)])
    with pytest.raises(BackupInvalid):
        verify_backup(cut, PASSPHRASE)
    manifest = extract_tenant(cut, PASSPHRASE, "hooli", tmp_path / "hooli.gost")
    assert (manifest["contents"]["count"], manifest["contents"]["damaged"]) == (1, [])
    assert manifest["damage"] is not None
    import_into(tmp_path / "other", tmp_path / "hooli.gost", "hooli", PASSPHRASE)
    done = extract_document(cut, PASSPHRASE, DocumentRequest(document_id), tmp_path / "report.txt")
    assert done.path.read_bytes() == b"the text of hooli" * 1000
    assert (done.made_at, done.damage is not None) == (None, True)
    with pytest.raises(BackupInvalid, match="damaged or missing"):
        extract_document(cut, PASSPHRASE, DocumentRequest(lost), tmp_path / "lost.bin")
    assert not (tmp_path / "lost.bin").exists()
    overview = describe_backup(cut, PASSPHRASE)
    assert (overview.made_at, [each.id for each in overview.tenants]) == (None, ["hooli", "initech"])
    assert overview.damage is not None


def test_a_damaged_content_of_a_neighbour_does_not_matter_and_an_own_one_is_listed(filled: World, tmp_path: Path) -> None:
    path = back_up(filled, tmp_path / "whole.gosb", None)

    def damage(name: str, content: bytes) -> bytes:
        return content.replace(b"text", b"TEXT") if name.startswith(f"{CONTENTS}hooli/") else content

    damaged = rewrite(path, tmp_path / "damaged.gosb", damage)
    with pytest.raises(BackupInvalid, match="content of the backup has changed"):
        verify_backup(damaged, None)
    assert extract_tenant(damaged, None, "initech", tmp_path / "initech.gost")["contents"]["damaged"] == []
    contents = extract_tenant(damaged, None, "hooli", tmp_path / "hooli.gost")["contents"]
    assert (contents["count"], [place.partition("/")[0] for place in contents["damaged"]]) == (0, ["hooli"])
    import_into(tmp_path / "other", tmp_path / "hooli.gost", "hooli", None)


def test_a_changed_database_of_an_unencrypted_backup_is_refused(filled: World, tmp_path: Path) -> None:
    path = back_up(filled, tmp_path / "whole.gosb", None)

    def change(name: str, content: bytes) -> bytes:
        return content.replace(b"report.txt", b"REPORT.TXT") if name == DATABASE else content

    changed = rewrite(path, tmp_path / "changed.gosb", change)
    with pytest.raises(BackupInvalid, match="does not match its manifest"):
        extract_tenant(changed, None, "initech", tmp_path / "initech.gost")
    assert not (tmp_path / "initech.gost").exists()


def test_a_document_is_taken_out_with_its_newest_or_all_revisions(filled: World, tmp_path: Path) -> None:
    scope = service.system_scope("initech")
    document_id = add_document(filled, scope, b"first")
    for content in (b"second", b"first"):
        add_revision(filled, scope, document_id, content)
    path = back_up(filled, tmp_path / "whole.gosb")
    newest = extract_document(path, PASSPHRASE, DocumentRequest(document_id), tmp_path / "own.bin")
    assert (newest.path.read_bytes(), newest.revisions, newest.name) == (b"first", (3,), "large.bin")
    (tmp_path / "folder").mkdir()
    inside = extract_document(path, PASSPHRASE, DocumentRequest(document_id), tmp_path / "folder")
    assert (inside.path, inside.path.stat().st_mode & 0o777) == (tmp_path / "folder" / "large.bin", 0o600)
    done = extract_document(path, PASSPHRASE, DocumentRequest(document_id, all_revisions=True), tmp_path / "all")
    files = {each.name: each.read_bytes() for each in done.path.iterdir()}
    assert files == {"1-large.bin": b"first", "2-large.bin": b"second", "3-large.bin": b"first"}
    for request, target in ((DocumentRequest(document_id), "own.bin"), (DocumentRequest(document_id, all_revisions=True), "all")):
        with pytest.raises(AlreadyExists):
            extract_document(path, PASSPHRASE, request, tmp_path / target)
    with pytest.raises(NotFound, match="no document 'doc_x'"):
        extract_document(path, PASSPHRASE, DocumentRequest("doc_x"), tmp_path / "x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["all", "data", "folder", "own.bin", "whole.gosb"]


def test_a_document_that_several_tenants_have_needs_its_tenant(filled: World, tmp_path: Path) -> None:
    export_tenant(service.system_scope("hooli"), filled.places, tmp_path / "hooli.gost", None)
    resealing = SecretReplacement(Sealer(load_or_make_key(filled.config.data / "key")))
    import_tenant(filled.places, resealing, ImportRequest(tmp_path / "hooli.gost", None, "copy"), filled.config.data)
    ((document_id,),) = db.rows("SELECT id FROM document WHERE tenant_id = 'copy'")
    path = back_up(filled, tmp_path / "whole.gosb")
    with pytest.raises(Conflict, match="choose one of copy, hooli"):
        extract_document(path, PASSPHRASE, DocumentRequest(document_id), tmp_path / "x")
    done = extract_document(path, PASSPHRASE, DocumentRequest(document_id, "copy"), tmp_path / "x")
    assert (done.tenant_id, hashlib.sha256(done.path.read_bytes()).hexdigest()) == (
        "copy", hashlib.sha256(b"the text of hooli" * 1000).hexdigest(),
    )  # fmt: skip


def test_the_name_of_a_document_cannot_leave_the_folder(filled: World, tmp_path: Path) -> None:
    """A backup may be anybody's."""
    db.write(lambda: db.execute("UPDATE document SET name = '../../../escaped.txt' WHERE tenant_id = 'hooli'"))
    ((document_id,),) = db.rows("SELECT id FROM document WHERE tenant_id = 'hooli'")
    path = back_up(filled, tmp_path / "whole.gosb")
    (tmp_path / "folder").mkdir()
    done = extract_document(path, PASSPHRASE, DocumentRequest(document_id), tmp_path / "folder")
    assert done.path.parent == tmp_path / "folder"
    assert [each.name for each in (tmp_path / "folder").iterdir()] == [done.path.name]


def test_an_overview_counts_what_each_tenant_has(filled: World, tmp_path: Path) -> None:
    overview = describe_backup(back_up(filled, tmp_path / "whole.gosb"), PASSPHRASE)
    assert [(each.id, each.name, each.contents, each.bytes) for each in overview.tenants] == [
        ("hooli", "Hooli", 1, 17_000), ("initech", "Initech", 1, 19_000),
    ]  # fmt: skip
    counts = {each.kind: each.count for each in overview.tenants[0].counts}
    assert (counts["entity"], counts["collection"], counts["document"]) == (8, 2, 1)
    assert (overview.is_sealed, overview.damage) == (True, None)
    assert overview.rows == sum(verify_backup(tmp_path / "whole.gosb", PASSPHRASE)["tables"].values())


def test_what_is_no_backup_of_an_appliance_is_refused(filled: World, tmp_path: Path) -> None:
    export_tenant(service.system_scope("hooli"), filled.places, tmp_path / "hooli.gost", None)
    with pytest.raises(BackupInvalid, match="use `gos tenant import`"):
        describe_backup(tmp_path / "hooli.gost", None)
    (tmp_path / "text.gosb").write_text("some text")
    with pytest.raises(BackupInvalid, match="is not a backup"):
        describe_backup(tmp_path / "text.gosb", None)
