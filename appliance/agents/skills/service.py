"""Stores, lists, loads, compares and deletes skills."""

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from appliance.blobs import ArchiveLimits, Blobs, Pieces, read_members
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, PayloadTooLarge, ValidationFailed, VersionConflict
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from .comparison import LONGEST_TEXT, FileChange, compare_texts
from .format import LARGEST_FILE, LARGEST_SET, MOST_FILES, SKILL_FILE, instructions_of, parse_skill
from .models import SkillFileRow, SkillRow, SkillVersionRow
from .records import Grant, LoadedSkill, ParsedSkill, Skill, SkillFile, SkillSummary

__all__ = [
    "HOLDERS", "FileChange", "Grant", "LoadedSkill", "ParsedSkill", "Skill", "SkillFile", "SkillSummary", "Skills", "parse_skill",
    "read_archive",
]  # fmt: skip
HOLDERS = ("skill_file",)  # the table that refers to blobs
MAX_SKILLS = 500
MAX_VERSIONS = 20
NOT_DESCRIBED = "(not approved: not described)"
LARGEST_CONTENT = 256 << 10  # bytes of a text file that a model may load


def read_archive(file: BinaryIO) -> dict[str, bytes]:
    """Read the files of a zip, tar or tar.gz by path; a single folder around SKILL.md is stripped.

    Raises InvalidRequest, ValidationFailed, PayloadTooLarge.
    """
    advice = "; skills are small: store the data they work on as documents"
    files = {}
    for member in read_members(file, ArchiveLimits(MOST_FILES, LARGEST_SET, advice)):
        content = member.read()
        if len(content) > LARGEST_FILE:
            raise PayloadTooLarge(Sentence(
                "%(path)s is larger than %(largest_file)s MiB%(advice)s",
                path=repr(member.path[:100]), largest_file=LARGEST_FILE >> 20, advice=advice,
            ))
        files[member.path] = content
    tops = {path.partition("/")[0] for path in files}
    if len(tops) == 1 and f"{min(tops)}/{SKILL_FILE}" in files:
        return {path.partition("/")[2]: content for path, content in files.items()}
    return files


class Skills:
    """Stores the skills of all tenants, with their files as blobs."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    # -- reading

    def list_skills(self, scope: TenantScope) -> list[SkillSummary]:
        """The names and descriptions of all skills, sorted by name, as a model sees them before it loads one."""
        scope.require("skills.read")
        return [_summary(row) for row in _joined(scope).order_by(SkillRow.name)]

    def list_page(self, scope: TenantScope, page: PageRequest) -> Page[Skill]:
        """A page of skills with their trust, sorted by name unless the page says otherwise."""
        fields = {"name": SkillRow.name, "created_at": SkillRow.created_at, "updated_at": SkillRow.updated_at}
        return paginate(_joined(scope), page, fields, default="name", tie="name").map(_skill)

    def get_skill(self, scope: TenantScope, name: str) -> Skill:
        """One skill; raises NotFound."""
        return _skill(_row(scope, name))

    def describe_skill(self, scope: TenantScope, name: str) -> str:
        """The description for the system prompt: a placeholder unless a person approved this version.  Raises NotFound."""
        skill = self.get_skill(scope, name)
        return skill.description if skill.trust == "trusted" else NOT_DESCRIBED

    def load_skill(self, scope: TenantScope, name: str, path: str | None = None, expected_digest: str | None = None) -> LoadedSkill:
        """Load the instructions and the list of files, and with `path` also the content of that text file.

        Raises ScopeMissing, NotFound; VersionConflict if the digest differs from the expected one (`extra.version_digest` has
        the current one); ValidationFailed for a binary file; PayloadTooLarge for a file too long for a model.
        """
        scope.require("skills.read")
        with db.snapshot():
            skill = self.get_skill(scope, name)
            check_digest(skill, expected_digest)
            files = self.list_files(scope, name, skill.version_digest)
        content = None if path is None else self._text(scope, _file(files, name, path))
        return LoadedSkill(skill, self._instructions(scope, files), files, content)

    def list_files(self, scope: TenantScope, name: str, digest: str) -> tuple[SkillFile, ...]:
        """The files of one version, sorted by their paths' bytes; raises NotFound."""
        rows = scope.select(SkillFileRow).where(SkillFileRow.name == name, SkillFileRow.digest == digest)
        files = [SkillFile(row.path, row.sha256, row.size, bool(row.is_text)) for row in rows]
        if not files:
            raise NotFound(Sentence(
                "there is no version %(digest)s of the skill %(name)s here", digest=repr(digest[:80]), name=repr(name[:80])
            ))
        return tuple(sorted(files, key=lambda file: file.path.encode()))

    def open_file(self, scope: TenantScope, name: str, path: str) -> tuple[SkillFile, Pieces]:
        """A file of the current version and its bytes, text or binary; raises NotFound."""
        with db.snapshot():
            file = _file(self.list_files(scope, name, self.get_skill(scope, name).version_digest), name, path)
        return file, self._blobs.read(scope, file.sha256)

    def read_files(self, scope: TenantScope, name: str, digest: str) -> dict[str, bytes]:
        """The contents of one version by path; raises NotFound."""
        files = self.list_files(scope, name, digest)
        return {file.path: self._blobs.read_whole(scope, file.sha256, LARGEST_FILE) for file in files}

    def compare(self, scope: TenantScope, name: str, digest: str, against: str) -> list[FileChange]:
        """The changes from version `against` to version `digest`; raises NotFound for a version that is no longer stored."""
        newer, older = ({file.path: file for file in self.list_files(scope, name, each)} for each in (digest, against))
        same = {path for path in newer.keys() & older.keys() if newer[path].sha256 == older[path].sha256}
        before, after = ({path: self._short(scope, f) for path, f in files.items() if path not in same} for files in (older, newer))
        return compare_texts(before, after)

    def _short(self, scope: TenantScope, file: SkillFile) -> str | None:
        """The text of a file, or None if it is binary or too long to compare."""
        return self._text(scope, file) if file.is_text and file.size <= LONGEST_TEXT else None

    def _instructions(self, scope: TenantScope, files: tuple[SkillFile, ...]) -> str:
        (about,) = (file for file in files if file.path == SKILL_FILE)
        return instructions_of(self._blobs.read_whole(scope, about.sha256, about.size))

    def _text(self, scope: TenantScope, file: SkillFile) -> str:
        if not file.is_text:
            raise ValidationFailed(Sentence("%(path)s is not text; a model cannot read it", path=repr(file.path)), pointer="/path")
        if file.size > LARGEST_CONTENT:
            raise PayloadTooLarge(Sentence(
                "%(path)s is larger than %(largest_content)s KiB, which is too long for a model; split it",
                path=repr(file.path), largest_content=LARGEST_CONTENT >> 10,
            ))
        return self._blobs.read_whole(scope, file.sha256, file.size).decode("utf8")

    # -- changing

    def put_skill(
        self, scope: TenantScope, name: str, files: Mapping[str, bytes], if_match: str | None = None
    ) -> tuple[Skill, bool]:
        """Store these files as the skill's current version; returns the skill and whether it is new.

        The version is untrusted unless a person has approved exactly this digest.  Raises ScopeMissing, ValidationFailed,
        PayloadTooLarge, ApiKeyLeaked; VersionConflict if the current digest differs from `if_match`.
        """
        scope.require("skills.write")
        parsed = parse_skill(name, files)
        store = self.prepare_version(scope, parsed)

        def put() -> tuple[Skill, bool]:
            row = scope.find(SkillRow, name=name)
            if if_match is not None:
                check_digest(self.get_skill(scope, name), if_match)
            store(scope)
            return self.get_skill(scope, name), row is None

        return db.write(put)

    def prepare_version(self, scope: TenantScope, parsed: ParsedSkill) -> Callable[[TenantScope], None]:
        """Store the contents as blobs, outside a transaction; returns a function that makes them current inside one, in a tenant
        that has the contents."""
        for content in dict.fromkeys(parsed.contents.values()):
            self._blobs.put(scope, content)
        return lambda to: self._store(to, parsed)

    def _store(self, scope: TenantScope, parsed: ParsedSkill) -> None:
        now = clock.now_ms()
        row = scope.find(SkillRow, name=parsed.name)
        before = None if row is None else row.digest
        if before == parsed.digest:
            return
        if row is None:
            if scope.select(SkillRow).count() >= MAX_SKILLS:
                raise Conflict(
                    Sentence("a tenant may have at most %(most_skills)s skills; delete an unused one", most_skills=MAX_SKILLS)
                )
            facts = {"created_at": now, "updated_at": now, "updated_by": scope.actor}
            scope.insert(SkillRow, name=parsed.name, digest=parsed.digest, **facts)
        else:
            changed = scope.update(SkillRow, digest=parsed.digest, updated_at=max(now, row.updated_at + 1), updated_by=scope.actor)
            changed.where(SkillRow.name == parsed.name).execute()
        self._insert_version(scope, parsed, now)
        _purge(scope, parsed.name)
        stored = self.get_skill(scope, parsed.name)
        audit.record(
            scope, "skill.put", parsed.name,
            {"digest": parsed.digest, "previous": before, "trust": stored.trust, "requested_tools": list(parsed.requested_tools)},
        )  # fmt: skip

    def _insert_version(self, scope: TenantScope, parsed: ParsedSkill, now: int) -> None:
        of_this = (SkillVersionRow.name == parsed.name, SkillVersionRow.digest == parsed.digest)
        if scope.update(SkillVersionRow, used_at=now).where(*of_this).execute():
            return
        front = {
            "description": parsed.description, "license": parsed.license, "compatibility": parsed.compatibility,
            "metadata": dict(parsed.metadata), "requested_tools": list(parsed.requested_tools),
        }  # fmt: skip
        scope.insert(
            SkillVersionRow, name=parsed.name, digest=parsed.digest, front=front, files=len(parsed.files),
            bytes=sum(file.size for file in parsed.files), created_at=now, created_by=scope.actor, used_at=now,
        )  # fmt: skip
        for file in parsed.files:
            self._blobs.hold(scope, file.sha256)
            scope.insert(
                SkillFileRow, name=parsed.name, digest=parsed.digest, path=file.path, sha256=file.sha256, size=file.size,
                is_text=int(file.is_text),
            )  # fmt: skip

    def delete_skill(self, scope: TenantScope, name: str) -> None:
        """Delete a skill with its versions and its grant.  Raises ScopeMissing, NotFound."""
        scope.require("skills.write")

        def delete() -> None:
            row = scope.get(SkillRow, name=name)
            scope.delete(SkillRow).where(SkillRow.name == name).execute()
            audit.record(scope, "skill.delete", name, {"digest": row.digest, "approved_digest": row.approved_digest})

        db.write(delete)


def has_skill(scope: TenantScope, name: str) -> bool:
    """Whether the tenant has a skill of this name."""
    return scope.find(SkillRow, name=name) is not None


def check_digest(skill: Skill, expected: str | None) -> None:
    """Raise VersionConflict unless the skill's digest is the expected one (None: any)."""
    if expected is not None and expected != skill.version_digest:
        raise VersionConflict(
            Sentence("the skill %(name)s has changed; read it again and use its current digest", name=skill.name),
            extra={"version_digest": skill.version_digest},
        )


def _file(files: tuple[SkillFile, ...], name: str, path: str) -> SkillFile:
    for file in files:
        if file.path == path:
            return file
    raise NotFound(Sentence("the skill %(name)s has no file %(path)s; `files` lists what it has", name=name, path=repr(path[:80])))


def _joined(scope: TenantScope) -> Any:
    """A query for skills, joined with the front matter of their current version."""
    front = (SkillVersionRow.front, SkillVersionRow.files, SkillVersionRow.bytes)
    same = (
        (SkillVersionRow.tenant_id == SkillRow.tenant_id)
        & (SkillVersionRow.name == SkillRow.name)
        & (SkillVersionRow.digest == SkillRow.digest)
    )
    return scope.select(SkillRow, *SkillRow._meta.sorted_fields, *front).join(SkillVersionRow, on=same, attr="version")


def _row(scope: TenantScope, name: str) -> Any:
    row = _joined(scope).where(SkillRow.name == name).get_or_none()
    if row is None:
        raise NotFound(Sentence("there is no skill %(name)s here", name=repr(name[:80])))
    return row


def _skill(row: Any) -> Skill:
    grant = None
    if row.approved_digest is not None:
        tools = tuple(row.granted_tools or ())
        grant = Grant(row.approved_digest, tools, row.granted_by, row.granted_login, row.granted_at)
    front = row.version.front
    return Skill(
        name=row.name, description=front["description"], version_digest=row.digest, license=front["license"],
        compatibility=front["compatibility"], metadata=front["metadata"], requested_tools=tuple(front["requested_tools"]),
        files=row.version.files, bytes=row.version.bytes, created_at=row.created_at, updated_at=row.updated_at,
        updated_by=row.updated_by, grant=grant,
    )  # fmt: skip


def _summary(row: Any) -> SkillSummary:
    skill = _skill(row)
    return SkillSummary(skill.name, skill.description, skill.version_digest, skill.trust)


def _purge(scope: TenantScope, name: str) -> None:
    """Delete the versions uploaded longest ago, but never the current or the approved one."""
    row = scope.get(SkillRow, name=name)
    rows = scope.select(SkillVersionRow).where(SkillVersionRow.name == name)
    ordered = sorted(rows, key=lambda each: (each.digest not in (row.digest, row.approved_digest), -each.used_at, each.digest))
    old = [each.digest for each in ordered[MAX_VERSIONS:]]
    if old:
        scope.delete(SkillVersionRow).where(SkillVersionRow.name == name, SkillVersionRow.digest.in_(old)).execute()
