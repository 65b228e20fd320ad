"""Storing, loading and comparing skills, and collecting the contents of old versions."""

import io
import zipfile
from functools import partial
from pathlib import Path

import pytest

from appliance.agents.skills.comparison import DiffLine, compare_texts
from appliance.agents.skills.service import LARGEST_CONTENT, MAX_VERSIONS, Skills, read_archive
from appliance.blobs import GRACE_MS, Blobs
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound, PayloadTooLarge, ScopeMissing, ValidationFailed, VersionConflict
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import AuditFilter, audit
from appliance.tenants import service as tenants

from .sample_skills import about, skill

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)


def actions(scope: TenantScope) -> list[str]:
    """What the audit trail says, oldest first."""
    return [entry.action for entry in audit.list_entries(scope, AuditFilter(), PageRequest(100, sort="seq")).items]


def test_a_skill_is_listed_loaded_and_read_file_by_file(skills: Skills, acme: TenantScope) -> None:
    stored, is_new = skills.put_skill(acme, "returns", skill(more="allowed-tools: query_entities\n", limits=b"at most 3\n"))
    assert is_new
    (summary,) = skills.list_skills(acme)
    assert (summary.name, summary.description, summary.trust) == ("returns", "How returns are handled.", "untrusted")
    loaded = skills.load_skill(acme, "returns")
    assert loaded.version_digest == summary.version_digest == stored.version_digest
    assert loaded.document() == {
        "name": "returns", "description": "How returns are handled.", "version_digest": stored.version_digest,
        "instructions": "# returns\n\nAsk before you write.", "requested_tools": ["query_entities"], "granted_tools": [],
        "trust": "untrusted", "files": loaded.document()["files"],
    }  # fmt: skip
    assert [(file["path"], file["kind"], file["size"]) for file in loaded.document()["files"]][1] == (
        "references/limits.md",
        "text",
        10,
    )
    assert skills.load_skill(acme, "returns", "references/limits.md").document()["content"] == "at most 3\n"
    assert (loaded.used.name, loaded.used.digest, loaded.used.is_trusted) == ("returns", stored.version_digest, False)


def test_another_tenant_sees_nothing(skills: Skills, acme: TenantScope, globex: TenantScope) -> None:
    skills.put_skill(acme, "returns", skill())
    assert skills.list_skills(globex) == []
    for access in (skills.load_skill, skills.get_skill, skills.delete_skill):
        with pytest.raises(NotFound, match="no skill 'returns' here"):
            access(globex, "returns")
    skills.put_skill(globex, "returns", skill(more="license: MIT\n"))
    assert skills.get_skill(acme, "returns").license == ""


def test_each_operation_needs_its_scope(skills: Skills, acme: TenantScope) -> None:
    skills.put_skill(acme, "returns", skill())
    nobody = TenantScope("acme", "key:nobody", frozenset({"skills.read"}))
    for change in (lambda: skills.put_skill(nobody, "returns", skill()), lambda: skills.delete_skill(nobody, "returns")):
        with pytest.raises(ScopeMissing, match=r"skills\.write"):
            change()
    for read in (skills.list_skills, partial(skills.load_skill, name="returns")):
        with pytest.raises(ScopeMissing, match=r"skills\.read"):
            read(TenantScope("acme", "key:nobody", frozenset({"skills.write"})))


def test_a_file_that_is_not_there_or_not_for_models_is_refused(skills: Skills, acme: TenantScope) -> None:
    files = skill() | {"assets/a.png": b"\x89PNG\0", "references/long.md": b"x" * (LARGEST_CONTENT + 1)}
    skills.put_skill(acme, "returns", files)
    with pytest.raises(NotFound, match="has no file"):
        skills.load_skill(acme, "returns", "../SKILL.md")
    with pytest.raises(ValidationFailed, match="not text"):
        skills.load_skill(acme, "returns", "assets/a.png")
    with pytest.raises(PayloadTooLarge, match="256 KiB"):
        skills.load_skill(acme, "returns", "references/long.md")
    file, pieces = skills.open_file(acme, "returns", "assets/a.png")
    assert (file.is_text, b"".join(pieces)) == (False, b"\x89PNG\0")


def test_a_digest_conflict_reports_the_current_digest(skills: Skills, acme: TenantScope) -> None:
    before = skills.put_skill(acme, "returns", skill())[0].version_digest
    after = skills.put_skill(acme, "returns", skill(more="license: MIT\n"), if_match=before)[0].version_digest
    for call in (
        lambda: skills.load_skill(acme, "returns", expected_digest=before),
        lambda: skills.load_skill(acme, "returns", "SKILL.md", expected_digest=before),
        lambda: skills.put_skill(acme, "returns", skill(), if_match=before),
    ):
        with pytest.raises(VersionConflict) as caught:
            call()
        assert caught.value.extra == {"version_digest": after}
    assert skills.load_skill(acme, "returns", expected_digest=after).version_digest == after


def test_a_refused_set_changes_nothing(skills: Skills, acme: TenantScope) -> None:
    before = skills.put_skill(acme, "returns", skill())[0]
    with pytest.raises(ValidationFailed):
        skills.put_skill(acme, "returns", {"SKILL.md": about("other")})
    assert skills.get_skill(acme, "returns") == before
    assert actions(acme) == ["skill.put"]


def test_putting_the_same_again_changes_nothing(skills: Skills, acme: TenantScope) -> None:
    before = skills.put_skill(acme, "returns", skill())
    assert skills.put_skill(acme, "returns", skill()) == (before[0], False)
    assert actions(acme) == ["skill.put"]


def test_versions_are_kept_by_digest_and_compared(skills: Skills, acme: TenantScope) -> None:
    first = skills.put_skill(acme, "returns", skill(old=b"1", same=b"2"))[0].version_digest
    second = skills.put_skill(acme, "returns", skill(same=b"2", new=b"3", more="license: MIT\n"))[0].version_digest
    changes = {change.path: (change.kind, change.lines) for change in skills.compare(acme, "returns", second, first)}
    assert changes["references/new.md"] == ("added", (DiffLine("added", "3"),))
    assert changes["references/old.md"] == ("removed", (DiffLine("removed", "1"),))
    kind, lines = changes["SKILL.md"]
    assert kind == "changed"
    assert [line for line in lines or () if line.kind not in ("same", "gap")] == [DiffLine("added", "license: MIT")]
    assert len(changes) == 3
    assert skills.read_files(acme, "returns", first) == skill(old=b"1", same=b"2")
    again = skills.put_skill(acme, "returns", skill(old=b"1", same=b"2"))[0]
    assert again.version_digest == first
    assert len(actions(acme)) == 3


@BOTH
def test_old_versions_go_and_their_contents_are_collected(
    skills: Skills, blobs: Blobs, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = [skills.put_skill(acme, "returns", skill(n=str(n).encode()))[0].version_digest for n in range(MAX_VERSIONS + 2)]
    with pytest.raises(NotFound, match="no version"):
        skills.list_files(acme, "returns", digests[0])
    assert skills.read_files(acme, "returns", digests[2]) == skill(n=b"2")
    later = clock.now_ms() + GRACE_MS + 1
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    assert blobs.collect() == 2
    assert skills.load_skill(acme, "returns", "references/n.md").content == str(MAX_VERSIONS + 1)
    skills.delete_skill(acme, "returns")
    assert blobs.collect() == MAX_VERSIONS + 1
    assert blobs.usage(acme).blobs == 0


@BOTH
def test_a_deleted_skill_and_a_deleted_tenant_leave_nothing(skills: Skills, acme: TenantScope, globex: TenantScope) -> None:
    for scope in (acme, globex):
        skills.put_skill(scope, "returns", skill())
    skills.delete_skill(acme, "returns")
    tenants.delete_tenant("globex")
    for table in ("skill", "skill_version", "skill_file"):
        assert db.rows(f"SELECT count(*) FROM {table}") == [(0,)]  # noqa: S608
    assert actions(acme) == ["skill.put", "skill.delete"]


@BOTH
def test_skills_are_paged_by_name(skills: Skills, acme: TenantScope) -> None:
    for name in ("c", "a", "b"):
        skills.put_skill(acme, name, skill(name))
    first = skills.list_page(acme, PageRequest(2))
    assert [each.name for each in first.items] == ["a", "b"]
    assert [each.name for each in skills.list_page(acme, PageRequest(2, first.next_cursor)).items] == ["c"]


def test_an_archive_is_read_with_or_without_a_folder_around_it(tmp_path: Path) -> None:
    for prefix in ("", "returns/"):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for path, content in skill(x=b"1").items():
                archive.writestr(prefix + path, content)
        assert read_archive(packed) == skill(x=b"1")
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("SKILL.md", b"\0" * (6 << 20))
    with pytest.raises(PayloadTooLarge, match="5 MiB"):
        read_archive(bomb)


def test_texts_that_repeat_themselves_are_compared_within_bounds() -> None:
    """Half of these is the same, and to find that takes more steps than there are; what comes after them has some left."""
    old, new = "a\nb\n" * 1_000, "a\nc\n" * 999
    long, short = compare_texts({"SKILL.md": old, "limits": "3\nb\n"}, {"SKILL.md": new, "limits": "4\nb\n"})
    assert long.lines is not None
    assert [line.text for line in long.lines if line.kind in ("same", "removed")] == old.splitlines()
    assert [line.text for line in long.lines if line.kind in ("same", "added")] == new.splitlines()
    assert [line.text for line in long.lines if line.kind == "same"] == ["a"], "no more than the equal beginning was looked for"
    assert short.lines == (DiffLine("removed", "3"), DiffLine("added", "4"), DiffLine("same", "b"))


def test_files_that_cannot_be_compared_are_still_listed() -> None:
    long = "x\n" * 3000
    changes = compare_texts({"a": "1", "b": None, "gone": "2"}, {"a": "1\n2", "b": "now text", "c": long})
    assert [(change.path, change.kind, change.lines is None) for change in changes] == [
        ("a", "changed", False), ("b", "changed", True), ("c", "added", True), ("gone", "removed", False),
    ]  # fmt: skip
