"""Surface: imports of tenants and restores of backups that somebody has made or changed."""

import hashlib
import io
import json
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from appliance.backups import ImportRequest, SecretReplacement, tenant_imports
from appliance.backups.parts import MANIFEST
from appliance.backups.problems import BackupInvalid
from appliance.backups.tenant_exports import TENANT_DATABASE, export_tenant
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.tenants import service
from tests.backups.conftest import CANARY, PASSPHRASE, World, make_world
from tests.backups.test_hostile import forge_export
from tests.redteam.attempts import attempts

Manifest = dict[str, Any]
Repack = Callable[[str, bytes], list[tuple[str, bytes]]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    """An appliance with two tenants, and the export of one."""
    folder = tmp_path_factory.mktemp("imports")
    world = make_world(folder / "data")
    with world.opened():
        export_tenant(world.fill(), world.places, folder / "initech.gost", None)
        export_tenant(service.system_scope("initech"), world.places, folder / "sealed.gost", PASSPHRASE)
    return world, folder / "initech.gost"


def repacked(source: Path, target: Path, change: Repack) -> Path:
    """The export with other parts: each may stay, go, change its name or be followed by more."""
    with tarfile.open(fileobj=io.BytesIO(zstandard.ZstdDecompressor().stream_reader(source.read_bytes()).read())) as tar:
        members = [(each.name, tar.extractfile(each).read()) for each in tar if each.isfile()]  # type: ignore[union-attr]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as written:
        for name, content in [more for each in members for more in change(*each)]:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            written.addfile(about, io.BytesIO(content))
    target.write_bytes(zstandard.compress(buffer.getvalue()))
    return target


def manifest_with(change: Callable[[Manifest], object]) -> Repack:
    """Only the manifest is another."""

    def repack(name: str, content: bytes) -> list[tuple[str, bytes]]:
        if name != MANIFEST:
            return [(name, content)]
        manifest = json.loads(content)
        change(manifest)
        return [(name, json.dumps(manifest).encode())]

    return repack


def part(at: str, change: Callable[[str, bytes], list[tuple[str, bytes]]]) -> Repack:
    """Only the parts whose names begin so are others."""
    return lambda name, content: change(name, content) if name.startswith(at) else [(name, content)]


def _person(**more: Any) -> Callable[[Manifest], object]:
    return lambda manifest: manifest["people"].append({"login": "ada", "role": "owner", "approver": False} | more)


REPACKED: dict[str, Repack] = {
    "no manifest": part(MANIFEST, lambda *_: []),
    "a manifest that is no JSON": part(MANIFEST, lambda name, _: [(name, b"{")]),
    "a manifest that is a list": part(MANIFEST, lambda name, _: [(name, b"[]")]),
    "an empty manifest": part(MANIFEST, lambda name, _: [(name, b'{"format": 1}')]),
    "two manifests": part(MANIFEST, lambda name, data: [(name, data), (name, data)]),
    "a newer form": manifest_with(lambda m: m.update(format=99)),
    "the kind of a backup": manifest_with(lambda m: m.update(kind="backup")),
    "another digest of the database": manifest_with(lambda m: m["parts"][0].update(sha256="0" * 64)),
    "another size of the database": manifest_with(lambda m: m["parts"][0].update(size=1)),
    "a part that is not there": manifest_with(lambda m: m["parts"].append({"name": "x", "size": 1, "sha256": "0" * 64})),
    "parts that are no list": manifest_with(lambda m: m.update(parts=7)),
    "more rows than there are": manifest_with(lambda m: m["tables"].update(process=5)),
    "fewer rows than there are": manifest_with(lambda m: m["tables"].pop("audit_entry")),
    "fewer contents": manifest_with(lambda m: m["contents"].update(count=0)),
    "contents that are a number": manifest_with(lambda m: m.update(contents=3)),
    "no tenant": manifest_with(lambda m: m.pop("tenant")),
    "a tenant without a name": manifest_with(lambda m: m["tenant"].pop("name")),
    "a tenant whose name is a list": manifest_with(lambda m: m["tenant"].update(name=["x"])),
    "a kind of tenant that there is not": manifest_with(lambda m: m["tenant"].update(kind="ruler")),
    "a kind that is an object": manifest_with(lambda m: m["tenant"].update(kind={})),
    "a role that there is not": manifest_with(_person(role="administrator")),
    "a role that is a list": manifest_with(_person(role=["owner"])),
    "a login that is an object": manifest_with(_person(login={"$ne": ""})),
    "an approver in words": manifest_with(_person(approver="yes")),
    "a person without a role": manifest_with(lambda m: m["people"].append({"login": "ada"})),
    "people that are a text": manifest_with(lambda m: m.update(people="ada")),
    "a database of another name": part(TENANT_DATABASE, lambda _, data: [("../tenant.db", data)]),
    "a database that is none": part(TENANT_DATABASE, lambda name, _: [(name, b"SQLite format 3\0" + b"x" * 5000)]),
    "two databases": part(TENANT_DATABASE, lambda name, data: [(name, data), (name, data)]),
    "a changed byte in the database": part(TENANT_DATABASE, lambda name, data: [(name, data[:9000] + b"\xff" + data[9001:])]),
    "a content out of its folder": part("contents/", lambda _, data: [("contents/../../../evil", data)]),
    "an absolute content": part("contents/", lambda _, data: [("/evil", data)]),
    "a content that is another": part("contents/", lambda name, data: [(name, data[:-1] + b"!")]),
    "a content twice": part("contents/", lambda name, data: [(name, data), (name, data)]),
    "no content": part("contents/", lambda *_: []),
    "a part of ours that does not belong": part(MANIFEST, lambda name, data: [("files/config.yaml", b"x"), (name, data)]),
    "the key of an appliance": part(MANIFEST, lambda name, data: [("key", b"k" * 32), (name, data)]),
}  # fmt: skip


def tenants_in(world: World) -> tuple[list[Any], ...]:
    """What an attempt must leave as it is: tenants, people, who may do what, and the other tenant's rows."""
    queries = (
        "SELECT id, kind FROM tenant ORDER BY id",
        "SELECT login FROM person",
        "SELECT tenant_id, user_id, role FROM membership",
        "SELECT sha256, place FROM blob ORDER BY place",
        "SELECT count(*) FROM audit_entry WHERE tenant_id = 'hooli'",
    )
    return tuple(db.rows(query) for query in queries)


def import_copy(world: World, sealer: Any, path: Path, **more: Any) -> object:
    if service.tenant_exists("copy"):  # an attempt that succeeded must not hide the next
        service.delete_tenant("copy")
    request = ImportRequest(path, more.pop("passphrase", None), **{"name": "copy", **more})
    return tenant_imports.import_tenant(world.places, SecretReplacement(sealer), request, world.config.data)


def test_a_changed_export_leaves_no_tenant(exported: tuple[World, Path], tmp_path: Path) -> None:
    world, source = exported
    outside = {path.name for path in world.config.data.parent.iterdir()}
    with world.opened() as sealer, attempts() as table:
        before = tenants_in(world)
        for number, (name, change) in enumerate(REPACKED.items()):
            path = repacked(source, tmp_path / f"{number}.gost", change)
            table.refused(name, lambda: import_copy(world, sealer, path), BackupInvalid)  # noqa: B023
            table.check(f"{name}: nothing is left", tenants_in(world) == before, tenants_in(world))
        table.check("nothing in other folders", {path.name for path in world.config.data.parent.iterdir()} == outside)
        import_copy(world, sealer, repacked(source, tmp_path / "same.gost", lambda name, data: [(name, data)]))
        assert tenants_in(world) != before, "the control: what is unchanged arrives"
        service.delete_tenant("copy")


def test_a_damaged_envelope_or_wrong_passphrase_imports_nothing(exported: tuple[World, Path], tmp_path: Path) -> None:
    world, source = exported
    sealed = source.with_name("sealed.gost").read_bytes()
    plain = source.read_bytes()
    changed: dict[str, tuple[bytes, str | None]] = {
        "another passphrase": (sealed, PASSPHRASE + "!"),
        "no passphrase": (sealed, None),
        "a space more": (sealed, PASSPHRASE + " "),
        "cut at the end": (sealed[:-1], PASSPHRASE),
        "cut in the middle": (sealed[: len(sealed) // 2], PASSPHRASE),
        "more at the end": (sealed + b"x", PASSPHRASE),
        "twice": (sealed + sealed, PASSPHRASE),
        "cut, plain": (plain[:-20], None),
        "more at the end, plain": (plain + b"x" * 600, None),
        "nothing": (b"", None),
        "a bomb": (zstandard.compress(bytes(64 << 20)), None),
    }
    for at in (0, 9, 33, len(sealed) - 1):
        changed[f"byte {at}"] = (sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :], PASSPHRASE)
    with world.opened() as sealer, attempts(least=15) as table:
        before = tenants_in(world)
        for number, (name, (data, passphrase)) in enumerate(changed.items()):
            path = tmp_path / f"{number}.gost"
            path.write_bytes(data)
            table.refused(name, lambda: import_copy(world, sealer, path, passphrase=passphrase), ApplianceError, BackupInvalid)  # noqa: B023
        table.check("nothing is left", tenants_in(world) == before)
        import_copy(world, sealer, source.with_name("sealed.gost"), passphrase=PASSPHRASE)
        assert tenants_in(world) != before
        service.delete_tenant("copy")


def test_an_import_makes_a_tenant_of_its_own(exported: tuple[World, Path], tmp_path: Path) -> None:
    """Rows that name another tenant, ids that are taken, and names that could not be made."""
    world, source = exported

    def everything_is(tenant: str) -> Callable[[sqlite3.Connection], object]:
        def change(file: sqlite3.Connection) -> None:
            for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                if "tenant_id" in {row[1] for row in file.execute(f'PRAGMA table_info("{name}")')}:
                    file.execute(f'UPDATE "{name}" SET tenant_id = ?', (tenant,))  # noqa: S608

        return change

    with world.opened() as sealer, attempts() as table:
        theirs = _digest_of_rows("hooli")
        for name, tenant in {"rows of another tenant": "hooli", "rows of nobody": ""}.items():
            path = forge_export(source, tmp_path / f"{len(name)}.gost", everything_is(tenant))
            table.refused(name, lambda: import_copy(world, sealer, path), BackupInvalid)  # noqa: B023
        import_copy(world, sealer, source)
        for name in ("secret", "api_key", "session", "domain", "invitation"):
            came = db.rows(f"SELECT count(*) FROM {name} WHERE tenant_id = 'copy'")  # noqa: S608
            table.check(f"no {name} comes with it", came == [(0,)], came)
        service.delete_tenant("copy")
        for wrong in ("hooli", "initech", "HOOLI", "../x", "a" * 25, "www", "a b", "v1", "con--", "\u0430dmin", "copy\0", "-a"):
            table.refused(f"the id {wrong!r}", lambda: tenant_imports.check_new_id(wrong), ApplianceError)  # noqa: B023
        table.refused("its own id, which is taken", lambda: import_copy(world, sealer, source, name=None), ApplianceError)
        table.check("the other tenant is as it was", _digest_of_rows("hooli") == theirs)
        table.check("no secret stands in an export", CANARY.encode() not in _unpacked(source))


def _unpacked(path: Path) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()


def _digest_of_rows(tenant: str) -> str:
    digest = hashlib.sha256()
    for (name,) in db.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        if "tenant_id" in {row[1] for row in db.rows(f'PRAGMA table_info("{name}")')}:
            digest.update(repr((name, db.rows(f'SELECT * FROM "{name}" WHERE tenant_id = ?', (tenant,)))).encode())  # noqa: S608
    return digest.hexdigest()
