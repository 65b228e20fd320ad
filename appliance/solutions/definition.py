"""Parses a solution folder into typed data and reports every problem at once; pure, no database."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from appliance.agents import Definition as AgentDefinition
from appliance.agents import parse_definition as parse_agent
from appliance.agents.skills import ParsedSkill
from appliance.core import ids, yaml12
from appliance.core.errors import ApplianceError, DefinitionInvalid, Detail, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.datapool import parse_collection
from appliance.governance.policies import Policy, parse_policy
from appliance.integrations import DEFAULT_CONCURRENCY, MAX_CONCURRENCY, IntegrationSpec, open_settings
from appliance.processes.definitions import (
    API_FILE,
    Definition,
    DefinitionProblems,
    Draft,
    Severity,
    line_of,
    parse_definition,
    validate_draft,
)
from appliance.processes.engine import raise_if_unchecked
from appliance.solutions.kinds.skills import FOLDER as SKILLS
from appliance.solutions.kinds.skills import read_skill
from appliance.solutions.kinds.webapps import FOLDER as WEBAPPS
from appliance.solutions.kinds.webapps import SolutionApp, is_left_out, read_app
from appliance.solutions.references import list_secrets
from appliance.webapps import LONGEST_ID
from appliance.webapps.files import MANIFEST

ROOT_FILE = "solution.yaml"
PROCESS_FILE = "process.yaml"
EDITOR_FILE = "tsconfig.json"
IGNORED_FOLDERS = ("docs", "tests", "sample", "__MACOSX")
_IGNORED_FILE = re.compile(r"(README|LICENSE|CHANGELOG|NOTICE)(\.[A-Za-z]+)?")
FOLDERS = ("collections", "integrations", "processes", "agents", "policies", WEBAPPS, SKILLS)
_SECRET_NAME = re.compile(r"[A-Za-z_]\w{0,62}", re.ASCII)


@dataclass(frozen=True)
class Problem:
    """A problem in a solution: its file, line if known, a code and a sentence."""

    file: str
    code: str
    message: str
    line: int | None = None
    severity: Severity = "error"
    column: int | None = None

    def describe(self) -> str:
        """The sentence, prefixed with its place."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return Sentence("%(place)s: %(message)s", place=place, message=self.message)


def raise_problems(problems: list[Problem]) -> None:
    """Raise DefinitionInvalid with every error, if there are any; Overloaded if the sandbox could not check them."""
    problems = [problem for problem in problems if problem.severity == "error"]
    if not problems:
        return
    raise_if_unchecked(problem.code for problem in problems)
    details = [Detail(f"/{problem.file}", problem.code, problem.describe()) for problem in problems]
    count = Sentence("%(problems)s problems, the first: ", problems=len(problems)) if len(problems) > 1 else ""
    raise DefinitionInvalid(
        Sentence("the solution is not valid; %(count)s%(message)s", count=count, message=details[0].message), details=details
    )


@dataclass(frozen=True)
class SolutionProcess:
    """A process of a solution; `lines` gives the line of each pointer into its process.yaml."""

    draft: Draft
    definition: Definition
    lines: Mapping[str, int] = field(repr=False)


@dataclass(frozen=True)
class SolutionIntegration:
    """An integration of a solution; `secrets` are the names of the tenant secrets its settings refer to."""

    spec: IntegrationSpec
    secrets: frozenset[str]
    lines: Mapping[str, int] = field(repr=False)


@dataclass(frozen=True)
class Solution:
    """The contents of a solution folder, each kind by name."""

    name: str
    description: str = ""
    connectors: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    collections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    integrations: Mapping[str, SolutionIntegration] = field(default_factory=dict)
    processes: Mapping[str, SolutionProcess] = field(default_factory=dict)
    webapps: Mapping[str, SolutionApp] = field(default_factory=dict)
    agents: Mapping[str, AgentDefinition] = field(default_factory=dict)
    skills: Mapping[str, ParsedSkill] = field(default_factory=dict)
    policies: Mapping[str, Policy] = field(default_factory=dict)

    def needed_connectors(self) -> list[str]:
        """The connectors listed in `needs` and those of the integrations."""
        return sorted({*self.connectors, *(each.spec.connector for each in self.integrations.values())})

    def needed_secrets(self) -> list[str]:
        """The secrets listed in `needs`, and those used by integrations, triggers that verify signatures, and WebApp access."""
        names = {name for each in self.integrations.values() for name in each.secrets}
        names |= {name for each in self.processes.values() for name in list_secrets(each.definition)}
        names |= {each.access.secret for each in self.webapps.values() if each.access.secret}
        return sorted({*self.secrets, *names})


def is_ignored(path: str) -> bool:
    """Whether a file is only for people or tools: hidden files, README, LICENSE, CHANGELOG, NOTICE, docs/, tests/, sample/, and
    the files for editors in a process's folder."""
    parts = path.split("/")
    if parts[0] == "processes" and len(parts) == 3 and parts[2] in (API_FILE, EDITOR_FILE):
        return True
    if (left_out := is_left_out(parts)) is not None:
        return left_out
    if any(part.startswith(".") for part in parts) or "__pycache__" in parts:
        return True
    return parts[0] in IGNORED_FOLDERS if len(parts) > 1 else bool(_IGNORED_FILE.fullmatch(path))


def read_solution(files: Mapping[str, bytes]) -> Solution:
    """Parse the files of a solution, by path from its folder; DefinitionInvalid lists every problem."""
    solution, problems = inspect_solution(files)
    raise_problems(problems)
    return solution


def inspect_solution(files: Mapping[str, bytes]) -> tuple[Solution, list[Problem]]:
    """Parse as much of a solution as possible, so that further checks can run on it, and list every problem."""
    reader = _Reader({path: content for path, content in files.items() if not is_ignored(path)})
    return reader.solution(), reader.problems


class _Reader:
    """Parses file by file and collects problems."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files
        self.problems: list[Problem] = []

    def problem(self, file: str, message: str, *, code: str = "validation_failed", line: int | None = None) -> None:
        self.problems.append(Problem(file, code, message, line))

    def solution(self) -> Solution:
        root, lines = self.document(ROOT_FILE, ("name", "description", "needs"), ("name",))
        needs = self.needs(root.get("needs"), lines)
        collections: dict[str, Mapping[str, Any]] = {}
        integrations: dict[str, SolutionIntegration] = {}
        processes: dict[str, SolutionProcess] = {}
        agents: dict[str, AgentDefinition] = {}
        policies: dict[str, Policy] = {}
        for path in sorted(self.files):
            folder, _, rest = path.partition("/")
            if folder == "collections" and (name := self.file_stem(path, rest)) is not None:
                collections[name] = self.collection(path, name)
            elif folder == "integrations" and (name := self.file_stem(path, rest)) is not None:
                integrations |= {name: integration} if (integration := self.integration(path, name)) else {}
            elif folder == "agents" and (name := self.file_stem(path, rest)) is not None:
                agents |= {name: agent} if (agent := self.agent(path, name)) else {}
            elif folder == "policies" and (name := self.file_stem(path, rest)) is not None:
                policies |= {name: policy} if (policy := self.policy(path, name)) else {}
            elif folder not in FOLDERS and path != ROOT_FILE:
                self.unknown(path)
        process_ids = self.folders("processes", "a process is a folder processes/<id>/ with process.yaml and its files")
        for process_id in process_ids:
            processes |= {process_id: process} if (process := self.process(process_id)) else {}
        apps = self.folders(WEBAPPS, "a WebApp is a folder webapps/<app>/ with app.yaml and public/")
        webapps = {app_id: app for app_id in apps if (app := self.webapp(app_id)) is not None}
        names = self.folders(SKILLS, "a skill is a folder SKILLS/<name>/ with SKILL.md and its files")
        skills = {name: skill for name in names if (skill := self.skill(name)) is not None}
        return Solution(
            self.name(root, lines), self.text(root.get("description", ""), "description", lines), *needs,
            collections=collections, integrations=integrations, processes=processes, webapps=webapps, agents=agents,
            skills=skills, policies=policies,
        )  # fmt: skip

    def unknown(self, path: str) -> None:
        self.problem(
            path,
            "a solution has solution.yaml, processes/, collections/, integrations/, webapps/, agents/, SKILLS/ and policies/; "
            "README, LICENSE, CHANGELOG, NOTICE, docs/, tests/, sample/ and hidden files are ignored. Remove this file",
            code="unknown_file",
        )

    def file_stem(self, path: str, rest: str) -> str | None:
        """The name in `<folder>/<name>.yaml`."""
        name, dot, suffix = rest.rpartition(".")
        if "/" in rest or not dot or suffix != "yaml" or not name:
            self.problem(path, "only files named <name>.yaml belong here", code="unknown_file")
            return None
        return name

    # -- YAML

    def document(self, path: str, allowed: tuple[str, ...], required: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, int]]:
        """The mapping in a file and its line numbers; with an empty `allowed` every member is accepted."""
        if path not in self.files:
            self.problem(path, f"the file is missing; a solution folder has {ROOT_FILE} at its top", code="missing")
            return {}, {}
        try:
            data, lines = yaml12.load_with_lines(self.files[path].decode("utf8"))
        except UnicodeDecodeError:
            self.problem(path, "the file is not UTF-8 text", code="invalid_encoding")
            return {}, {}
        except yaml12.YamlInvalid as error:
            self.problem(path, error.message, code="invalid_yaml", line=error.line)
            return {}, {}
        if not isinstance(data, dict):
            self.problem(path, "the file must be a mapping", line=1)
            return {}, {}
        for member in data if allowed else ():
            if member not in allowed:
                sentence = f"{member[:60]!r} is not known here; known are {', '.join(allowed)}"
                self.problem(path, sentence, code="unknown_member", line=lines.get(f"/{member}"))
        for member in required:
            if member not in data:
                self.problem(path, f"{member!r} is required", code="required", line=1)
        return data, lines

    def text(self, value: Any, member: str, lines: Mapping[str, int], path: str = ROOT_FILE) -> str:
        if isinstance(value, str) and len(value) <= 2000:
            return value
        self.problem(path, f"{member} must be a text of at most 2000 characters", line=lines.get(f"/{member}"))
        return ""

    def is_valid_name(self, check: Any, path: str) -> bool:
        try:
            check()
        except ValidationFailed as error:
            self.problem(path, error.message, code="invalid_name")
            return False
        return True

    # -- the parts

    def name(self, root: Mapping[str, Any], lines: Mapping[str, int]) -> str:
        if "name" not in root:
            return ""
        name = root["name"]
        try:
            return ids.check_slug(name if isinstance(name, str) else str(name), pointer="/name")
        except ValidationFailed as error:
            self.problem(ROOT_FILE, error.message, code="invalid_name", line=lines.get("/name"))
            return ""

    def needs(self, value: Any, lines: Mapping[str, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        members = value if isinstance(value, dict) else {}
        if value is not None and (not isinstance(value, dict) or set(value) - {"connectors", "secrets"}):
            self.problem(ROOT_FILE, "needs has connectors and secrets, each a list of names", line=lines.get("/needs"))
        return self.names(members, "connectors", lines), self.names(members, "secrets", lines)

    def names(self, members: Mapping[str, Any], member: str, lines: Mapping[str, int]) -> tuple[str, ...]:
        value = members.get(member)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self.problem(ROOT_FILE, f"needs.{member} must be a list of names", line=lines.get(f"/needs/{member}"))
            return ()
        for index, name in enumerate(value):
            if member == "secrets" and not _SECRET_NAME.fullmatch(name):
                self.problem(ROOT_FILE, f"{name[:60]!r} is not a secret's name", line=lines.get(f"/needs/secrets/{index}"))
        return tuple(value)

    def add_error(self, path: str, error: ApplianceError, lines: Mapping[str, int]) -> None:
        """Add the error of a domain's own parser, each detail with its line."""
        for detail in error.details or [Detail("", error.code, error.message)]:
            place = f"{detail.pointer} " if detail.pointer else ""
            self.problem(path, f"{place}{detail.message}", code=detail.code, line=line_of(detail.pointer, lines) or lines.get(""))

    def collection(self, path: str, name: str) -> Mapping[str, Any]:
        data, lines = self.document(path, (), ())
        if not data:
            return {}
        if data.setdefault("name", name) != name:
            self.problem(path, f"the collection's name is {data['name']!r}, its file says {name!r}", line=lines.get("/name"))
        try:
            return parse_collection(data).document()
        except ApplianceError as error:
            self.add_error(path, error, lines)
            return {}

    def integration(self, path: str, slug: str) -> SolutionIntegration | None:
        data, lines = self.document(path, ("name", "connector", "settings", "concurrency"), ("connector",))
        if not data or not self.is_valid_name(partial(ids.check_slug, slug, pointer=""), path):
            return None
        settings = data.get("settings") or {}
        if not isinstance(settings, dict) or not isinstance(data.get("connector", ""), str):
            self.problem(path, "connector must be a name and settings a mapping", line=1)
            return None
        concurrency = data.get("concurrency", DEFAULT_CONCURRENCY)
        if type(concurrency) is not int or not 1 <= concurrency <= MAX_CONCURRENCY:
            message = f"concurrency must be a whole number from 1 to {MAX_CONCURRENCY}"
            self.problem(path, message, line=line_of("/concurrency", lines) or 1)
            return None
        name = self.text(data.get("name") or slug, "name", lines, path)
        spec = IntegrationSpec(str(data.get("connector", "")), settings, name, concurrency)
        names: set[str] = set()
        try:
            open_settings(settings, {}, names.add)
        except ValidationFailed as error:
            self.add_error(path, error, lines)
            return None
        return SolutionIntegration(spec, frozenset(names), lines)

    def agent(self, path: str, name: str) -> AgentDefinition | None:
        data, lines = self.document(path, (), ())
        if not data:
            return None
        try:
            return parse_agent(name, data)
        except ApplianceError as error:
            self.add_error(path, error, lines)
            return None

    def skill(self, name: str) -> ParsedSkill | None:
        prefix = f"{SKILLS}/{name}/"
        skill, problems = read_skill(name, {p.removeprefix(prefix): data for p, data in self.files.items() if p.startswith(prefix)})
        for file, code, sentence in problems:
            self.problem(prefix + file, sentence, code=code)
        return skill

    def policy(self, path: str, name: str) -> Policy | None:
        problem_count = len(self.problems)
        data, lines = self.document(path, (), ())
        if len(self.problems) > problem_count:
            return None
        try:
            return parse_policy(data, name)
        except ApplianceError as error:
            self.add_error(path, error, lines)
            return None

    def folders(self, top: str, sentence: str) -> Iterator[str]:
        """The names of the folders in `top`; any file directly in it is a problem."""
        names: dict[str, str] = {}
        for path in sorted(self.files):
            parts = path.split("/")
            if parts[0] == top and len(parts) < 3:
                self.problem(path, sentence, code="unknown_file")
            elif parts[0] == top:
                names.setdefault(parts[1], path)
        yield from names

    def webapp(self, app_id: str) -> SolutionApp | None:
        prefix = f"{WEBAPPS}/{app_id}/"
        about = prefix + MANIFEST
        if not self.is_valid_name(partial(ids.check_slug, app_id, pointer="", longest=LONGEST_ID), about):
            return None
        app, problems = read_app({p.removeprefix(prefix): content for p, content in self.files.items() if p.startswith(prefix)})
        for file, error in problems:
            placed = prefix + file == about and about in self.files and any(detail.pointer for detail in error.details)
            self.add_error(prefix + file, error, yaml12.load_with_lines(self.files[about].decode("utf8"))[1] if placed else {})
        return None if problems else app

    def process(self, process_id: str) -> SolutionProcess | None:
        prefix = f"processes/{process_id}/"
        path = prefix + PROCESS_FILE
        data, lines = self.document(path, (), ())
        source = self.files.get(path, b"").decode("utf8", "replace")
        draft = Draft({"id": process_id, **data}, self.process_files(prefix), source)
        if not data or not self.is_valid_name(partial(validate_draft, process_id, draft), path):
            return None
        try:
            return SolutionProcess(draft, parse_definition(dict(draft.definition), draft.files), lines)
        except DefinitionProblems as error:
            for problem in error.problems:
                line = line_of(problem.pointer, lines) or 1
                self.problem(path, f"{problem.pointer or '/'} {problem.message}", code=problem.code, line=line)
            return SolutionProcess(draft, error.partial, lines) if error.partial is not None else None

    def process_files(self, prefix: str) -> dict[str, str]:
        texts = {}
        for path, content in self.files.items():
            if not path.startswith(prefix) or path == prefix + PROCESS_FILE:
                continue
            try:
                texts[path.removeprefix(prefix)] = content.decode("utf8")
            except UnicodeDecodeError:
                self.problem(path, "the file is not UTF-8 text; the files of a process are texts", code="invalid_encoding")
        return texts
