"""The skills of a solution: read them from SKILLS/<name>/, compare them with the tenant's, store and export them.

An apply writes files but never approves them: a changed skill is untrusted until a signed-in person approves its new digest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from appliance.agents.skills import SKILL_FILE, ParsedSkill, Skill, Skills, parse_skill
from appliance.core.errors import ApplianceError, Conflict, NotFound
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.solutions.kinds.changes import Change, read_all

FOLDER = "SKILLS"
MAX_EXPORT_BYTES = 2 << 20  # of skills in an export; they have to fit into a solution with everything else
MAX_EXPORT_FILES = 2_000


def read_skill(name: str, files: Mapping[str, bytes]) -> tuple[ParsedSkill | None, list[tuple[str, str, str]]]:
    """The skill in these files, by path from its folder, or its problems as (file, code, sentence)."""
    try:
        return parse_skill(name, files), []
    except ApplianceError as error:
        problems = []
        for each in error.details:
            file = each.pointer.removeprefix("/files/") if each.pointer.startswith("/files/") else SKILL_FILE
            problems.append((file, each.code, each.message.removeprefix(f"{file}: ")))
        return None, problems or [(SKILL_FILE, error.code, error.message)]


def plan_skill(scope: TenantScope, skills: Skills | None, parsed: ParsedSkill) -> Change:
    """What an apply would do with this skill."""
    if skills is None:
        return Change("skill", parsed.name, "create", _count(len(parsed.files)), "this appliance has no skills")
    try:
        skill = skills.get_skill(scope, parsed.name)
    except NotFound:
        return Change("skill", parsed.name, "create", f"{_count(len(parsed.files))}; {_trust(parsed, None)}")
    if skill.version_digest == parsed.digest:
        return Change("skill", parsed.name, "unchanged", skill.trust)
    summary = ", ".join(_changed(scope, skills, skill, parsed))
    return Change("skill", parsed.name, "update", f"{summary}; {_trust(parsed, skill)}")


def _trust(parsed: ParsedSkill, skill: Skill | None) -> str:
    if skill is not None and skill.grant is not None and skill.grant.digest == parsed.digest:
        return "trusted, because this content was approved"
    return "untrusted until a person approves it"


def _count(files: int) -> str:
    return f"{files} file{'s' * (files != 1)}"


def _changed(scope: TenantScope, skills: Skills, skill: Skill, parsed: ParsedSkill) -> Iterator[str]:
    before = {file.path: file.sha256 for file in skills.list_files(scope, skill.name, skill.version_digest)}
    after = {file.path: file.sha256 for file in parsed.files}
    counts = (
        ("added", len(after.keys() - before.keys())),
        ("changed", sum(before[path] != after[path] for path in before.keys() & after.keys())),
        ("removed", len(before.keys() - after.keys())),
    )
    yield from (f"{_count(count)} {what}" for what, count in counts if count)


def is_written(change: Change) -> bool:
    """Whether an apply writes files of a skill."""
    return change.kind == "skill" and change.action in ("create", "update")


class PreparedSkills:
    """Stores, before the write, the contents of every skill that an apply changes."""

    def __init__(
        self, scope: TenantScope, skills: Skills | None, parsed: Mapping[str, ParsedSkill], changes: Iterable[Change]
    ) -> None:
        self._writers: dict[str, Callable[[TenantScope], None]] = {}
        self.contents: set[str] = set()
        for change in changes:
            if is_written(change) and skills is not None:
                self._writers[change.id] = skills.prepare_version(scope, parsed[change.id])
                self.contents.update(file.sha256 for file in parsed[change.id].files)

    def write(self, scope: TenantScope, name: str) -> None:
        """Inside the write: make the prepared files the current ones of the skill."""
        if name not in self._writers:
            raise Conflict(Sentence("the skill %(name)s changed while the solution was applied; apply it again", name=name))
        self._writers[name](scope)


def load_skills(scope: TenantScope, skills: Skills) -> tuple[dict[str, bytes], list[str]]:
    """The files of SKILLS/ by path, and the names of the skills that are too large for a solution.  ScopeMissing."""
    files: dict[str, bytes] = {}
    left_out: list[str] = []
    size = 0
    for skill in read_all(lambda page: skills.list_page(scope, page)):
        scope.require("skills.read")
        if size + skill.bytes > MAX_EXPORT_BYTES or len(files) + skill.files > MAX_EXPORT_FILES:
            left_out.append(skill.name)
            continue
        size += skill.bytes
        contents = skills.read_files(scope, skill.name, skill.version_digest)
        files |= {f"{FOLDER}/{skill.name}/{path}": content for path, content in contents.items()}
    return files, left_out
