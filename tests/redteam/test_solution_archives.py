"""Surface: `solutions.apply` with archives that lie, folders that are hostile, and keys that may do less than the folder holds."""

import gzip
import io
import json
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from appliance.core.database import db
from appliance.core.errors import Conflict, ScopeMissing
from appliance.core.scope import TenantScope
from appliance.solutions import ApplyOptions, apply_solution, read_solution, write_zip
from appliance.solutions.service import Application, plan_solution
from appliance.tenants import SCOPES
from appliance.testing.running import Running
from tests.api.resources import PREFIX, fresh
from tests.redteam.attempts import Attempts, attempts

Files = dict[str, bytes]
ROOT: Files = {"solution.yaml": b"name: small\n"}
KINDS: dict[str, tuple[tuple[str, ...], Files]] = {
    "collection": (("datapool.admin",), {"collections/things.yaml": b"fields:\n  - {name: code, type: text}\n"}),
    "integration": (
        ("integrations.write",),
        {"integrations/erp.yaml": b"connector: http\nsettings: {base_url: https://erp.example.com}\n"},
    ),
    "process": (("processflow.write",), {"processes/add/process.yaml": b"id: add\nsteps:\n  - {id: s, rule: {expression: = 1}}\n"}),
    "webapp": (
        ("webapps.write", "webapps.publish"),
        {"webapps/shop/app.yaml": b"spa: true\n", "webapps/shop/public/a.html": b"<h1>x</h1>"},
    ),
    "agent": (("agents.write",), {"agents/clerk.yaml": b"id: clerk\nname: Clerk\nmodel: house\ninstructions: Note it.\n"}),
    "skill": (("skills.write",), {"SKILLS/returns/SKILL.md": b"---\nname: returns\ndescription: How.\n---\nAsk first.\n"}),
    "policy": (
        ("policies.write",),
        {"policies/buying.yaml": b"mode: observe\nrules:\n  - {id: no, effect: deny, reason: not yet}\n"},
    ),
}
"""Each kind of thing a solution may hold, with the scopes it takes."""

STATE = (
    "collection",
    "integration",
    "process",
    "process_version",
    "webapp",
    "webapp_version",
    "agent",
    "skill",
    "policy",
    "solution_item",
)


@pytest.fixture(scope="module")
def tenant(running: Running) -> str:
    running.tenant("parcels")
    return "parcels"


def state(tenant: str) -> dict[str, Any]:
    """How many rows the tenant has of everything that an apply may make or change, and how many changes its audit trail tells."""
    tables = {name for (name,) in db.rows("SELECT name FROM sqlite_master WHERE type = 'table'")} & set(STATE)
    assert len(tables) > 6, tables
    counted = {name: db.rows(f"SELECT count(*) FROM {name} WHERE tenant_id = ?", (tenant,))[0][0] for name in sorted(tables)}  # noqa: S608
    changes = "actor <> 'system' AND action <> 'request.refuse'"
    audited = db.rows(f"SELECT count(*) FROM audit_entry WHERE tenant_id = ? AND {changes}", (tenant,))  # noqa: S608
    return counted | {"audited": audited[0][0]}


def send(client: httpx.Client, data: bytes, **params: Any) -> httpx.Response:
    return client.post(f"{PREFIX}/solutions/apply", content=data, params=params, headers={"Content-Type": "application/zip"})


def zipped(*members: tuple[str, bytes], mode: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (("solution.yaml", b"name: small\n"), *members):
            info = zipfile.ZipInfo(name)
            info.external_attr = (mode if name != "solution.yaml" else 0) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return out.getvalue()


def tarred(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"x") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, data, sort in (("solution.yaml", b"name: small\n", tarfile.REGTYPE), (name, content, kind)):
            info = tarfile.TarInfo(path)
            info.size, info.type, info.linkname = len(data) if sort == tarfile.REGTYPE else 0, sort, link
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def processed(text: str) -> bytes:
    """A solution with one process of this text."""
    return zipped(("processes/add/process.yaml", text.encode()))


STEP = "steps:\n  - {id: s, rule: {expression: = 1}}\n"
ARCHIVES: dict[str, Callable[[], bytes]] = {
    "out of the folder": lambda: zipped(("../evil.yaml", b"x")),
    "out from within": lambda: zipped(("processes/a/../../../evil", b"x")),
    "absolute": lambda: zipped(("/etc/cron.d/evil", b"x")),
    "backslashes": lambda: zipped(("processes\\a\\process.yaml", b"x")),
    "a drive": lambda: zipped(("C:/evil", b"x")),
    "out of the folder, in a tar": lambda: tarred("../../evil"),
    "a link in a zip": lambda: zipped(("processes/add/process.yaml", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777),
    "a link in a tar": lambda: tarred("processes/add/process.yaml", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": lambda: tarred("processes/add/process.yaml", tarfile.LNKTYPE, "solution.yaml"),
    "a device": lambda: tarred("processes/add/process.yaml", tarfile.CHRTYPE),
    "the same name twice": lambda: zipped(("policies/p.yaml", b"mode: enforce"), ("policies/p.yaml", b"mode: observe")),
    "two spellings of a name": lambda: zipped(("policies/p.yaml", b"a: 1"), ("Policies/p.yaml", b"a: 2")),
    "two solutions": lambda: zipped(("Solution.yaml", b"name: other")),
    "decomposed": lambda: zipped(("collections/cafe\u0301.yaml", b"fields: []")),
    "a bomb in a zip": lambda: zipped(("processes/add/steps/a.js", bytes(20 << 20))),
    "a bomb in a tar": lambda: tarred("processes/add/steps/a.js", content=bytes(20 << 20)),
    "a bomb of nothing": lambda: gzip.compress(bytes(64 << 20)),
    "too many files": lambda: zipped(*((f"docs/{number}", b"") for number in range(10_001))),
    "cut off": lambda: zipped(("processes/add/process.yaml", STEP.encode()))[:-30],
    "an archive in an archive": lambda: zipped(("processes/inner.zip", zipped())),
    "a process called ..": lambda: zipped(("processes/%2e%2e/process.yaml", STEP.encode())),
    "a process called con": lambda: zipped(("processes/con/process.yaml", STEP.encode())),
    "a process in capitals": lambda: zipped(("processes/ADD/process.yaml", STEP.encode())),
    "a process of another name": lambda: processed(f"id: other\n{STEP}"),
    "a collection called batch": lambda: zipped(("collections/batch.yaml", b"fields: [{name: a, type: text}]")),
    "a collection of another name": lambda: zipped(("collections/a.yaml", b"name: b\nfields: [{name: a, type: text}]")),
    "an app with a name too long": lambda: zipped((f"webapps/{'a' * 30}/app.yaml", b"spa: true")),
    "an unknown folder": lambda: zipped(("bin/run.sh", b"rm -rf /")),
    "code in a tag": lambda: processed(f"id: !!python/object/apply:os.system [id]\n{STEP}"),
    "a mapping twice": lambda: processed(f"id: add\nid: add\n{STEP}"),
    "laughs": lambda: processed(
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
        )
    ),
    "an infinite number": lambda: processed("id: add\nsteps:\n  - {id: s, rule: {expression: = 1}, input: {x: 1e400}}\n"),
    "nested without end": lambda: processed("id: add\nsteps: " + "[" * 5000 + "]" * 5000),
    "no text": lambda: zipped(("processes/add/process.yaml", b"\xff\xfe\x00")),
    "a secret that is sealed elsewhere": lambda: zipped(
        (
            "integrations/erp.yaml",
            b"connector: http\nsettings: {base_url: https://a.example, auth: {kind: bearer, token: {sealed: true}}}",
        )
    ),
    "a schema that follows itself": lambda: processed(f"id: add\ninput: {{$ref: 'file:///etc/passwd'}}\n{STEP}"),
    "a file step out of its folder": lambda: processed(
        "id: add\nsteps:\n  - {id: s, code: {language: javascript, file: ../../solution.yaml}}\n"
    ),
}


@pytest.fixture(scope="module")
def all_powerful(running: Running, tenant: str) -> Iterator[httpx.Client]:
    with running.api(tenant) as client:
        yield client


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_archive_changes_nothing(tenant: str, all_powerful: httpx.Client) -> None:
    before = state(tenant)
    with attempts() as table:
        for name, make in ARCHIVES.items():
            answer = send(all_powerful, make())
            coded = 400 <= answer.status_code < 500
            table.check(name, coded and state(tenant) == before, (answer.status_code, answer.text))
    control = send(all_powerful, processed(f"id: add\n{STEP}"))
    assert (control.status_code, state(tenant) == before) == (200, False), control.text


def test_a_key_without_the_scope_of_one_thing_changes_none(running: Running, tenant: str) -> None:
    """Everything the folder holds is asked for, whatever else the key may do."""
    every = sorted({name for scopes, _ in KINDS.values() for name in scopes})
    whole = write_zip(ROOT | {path: data for _, files in KINDS.values() for path, data in files.items()})
    with attempts() as table:
        for kind, (scopes, files) in KINDS.items():
            for missing in scopes:
                allowed = ["solutions.apply", *(name for name in every if name != missing)]
                with running.api(tenant, allowed) as client:
                    _check_refused(table, f"{missing}: all but it, the whole folder", tenant, client, whole)
                    _check_refused(table, f"{missing}: all but it, {kind} alone", tenant, client, write_zip(ROOT | files))
        with running.api(tenant, every) as client:
            _check_refused(table, "everything but solutions.apply", tenant, client, whole)
        with running.api(tenant, ["solutions.apply"]) as client:
            _check_refused(table, "solutions.apply alone", tenant, client, whole)
            _check_refused(table, "the process of a wrapped folder", tenant, client, write_zip(
                {f"wrapped/{path}": data for path, data in (ROOT | KINDS["process"][1]).items()}))  # fmt: skip
        with running.api("globex") as client:
            elsewhere = state(tenant)
            send(client, write_zip(ROOT | KINDS["policy"][1]))
            table.check("another tenant's key", state(tenant) == elsewhere, state(tenant))
    with running.api(tenant, ["solutions.apply", *every]) as client:
        control = send(client, whole)
        assert control.status_code == 200, control.text
        assert {each["kind"] for each in control.json()["data"]["changes"] if each["action"] == "create"} >= {
            "agent",
            "skill",
            "policy",
        }


def _check_refused(table: Attempts, name: str, tenant: str, client: httpx.Client, data: bytes) -> None:
    before = state(tenant)
    answer = send(client, data, prune="true", allow_loss="true")
    missing = (answer.status_code, answer.json()["error"]["code"]) == (403, "scope_missing")
    table.check(name, missing and state(tenant) == before, (answer.status_code, answer.text))


def test_changes_between_plan_and_write_need_their_scope(running: Running) -> None:
    """What a folder leaves alone when it is planned may be its business when it is written: two applies that cross."""
    tools, policy = running.services.solutions, KINDS["policy"][1]
    stricter = {"policies/buying.yaml": policy["policies/buying.yaml"].replace(b"observe", b"enforce")}
    shop = {path: data.replace(b"<h1>x", b"<h1>y") for path, data in KINDS["webapp"][1].items()}
    crossings = {
        "policies.write": (policy, stricter, False), "webapps.write": (KINDS["webapp"][1], shop, False),
        "processflow.write": ({}, KINDS["process"][1], True), "integrations.write": ({}, KINDS["integration"][1], True),
        "agents.write": ({}, KINDS["agent"][1], True), "skills.write": ({}, KINDS["skill"][1], True),
    }  # fmt: skip
    with attempts(least=len(crossings)) as table:
        for number, (missing, (initial, changed, prune)) in enumerate(crossings.items()):
            scope = running.tenant(f"crossed{number}")
            every, narrow = scope_of(scope, *SCOPES), scope_of(scope, *(set(SCOPES) - {missing}))
            apply_solution(every, tools, read_solution(ROOT | KINDS["collection"][1] | initial))
            solution, options = read_solution(ROOT | KINDS["collection"][1] | initial), ApplyOptions(prune=prune)
            work = Application(narrow, tools, solution, options)
            work.prepare(plan_solution(narrow, tools, solution, options))
            apply_solution(every, tools, read_solution(ROOT | KINDS["collection"][1] | changed))
            table.refused(missing, lambda: db.write(work.write), ScopeMissing, Conflict)  # noqa: B023
            again = plan_solution(every, tools, read_solution(ROOT | KINDS["collection"][1] | changed))
            table.check(f"{missing}: nothing was written", {change.action for change in again} == {"unchanged"}, again)


def scope_of(scope: TenantScope, *scopes: str) -> TenantScope:
    return TenantScope(scope.tenant_id, "key:key_test", frozenset(scopes))


def test_ten_concurrent_applies_write_once(running: Running, tenant: str) -> None:
    name, key = fresh("together"), running.key(tenant)
    data = write_zip(ROOT | {f"processes/{name}/process.yaml": f"id: {name}\n{STEP}".encode()})

    def apply(_: int) -> int:
        with running.client(f"{tenant}.localhost", {"X-API-Key": key}) as client:
            return send(client, data).status_code

    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(apply, range(10)))
    assert 200 in answers
    assert set(answers) <= {200, 409}
    assert db.rows("SELECT count(*) FROM process_version WHERE tenant_id = ? AND process_id = ?", (tenant, name)) == [(1,)]


def test_a_password_in_a_folder_is_refused_and_not_repeated(running: Running) -> None:
    """Secrets do not travel in folders: neither is it taken, nor is it told back or noted anywhere."""
    canary = "swordfish-in-a-folder-77"
    running.tenant("folders")
    settings = {"base_url": "https://erp.example.com", "auth": {"kind": "bearer", "token": canary}}
    data = write_zip(ROOT | {"integrations/erp.yaml": json.dumps({"connector": "http", "settings": settings}).encode()})
    with running.api("folders") as client:
        answers = [client.post(f"{PREFIX}/solutions/plan", content=data), send(client, data)]
        assert [each.status_code for each in answers] == [422, 422]
        answers += [client.get(f"{PREFIX}{path}") for path in ("/integrations", "/logs/audit", "/logs")]
        assert [each.text for each in answers if canary in each.text] == []
