"""Parses and validates skills in the Agent Skills format (agentskills.io/specification), reporting every problem.  Pure.

SKILL.md starts with front matter between two `---` lines: `name` (equal to the folder's) and `description`, and optionally
`license`, `compatibility`, `metadata` and `allowed-tools`.  Every scalar in it is read as text.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.blobs import Paths
from appliance.core import yaml12
from appliance.core.errors import ApiKeyLeaked, ApplianceError, Detail, PayloadTooLarge, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.tenants.keys import contains_key

from .invisible_characters import describe_character, find_invisible
from .records import ParsedSkill, SkillFile, digest_of

SKILL_FILE = "SKILL.md"
MOST_FILES = 200
LARGEST_FILE = 5 << 20
LARGEST_SET = 20 << 20
LARGEST_SKILL_FILE = 128 << 10
LARGEST_FRONT = 16 << 10
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1024
LONGEST_COMPATIBILITY = 500
LONGEST_LICENSE = 500
MOST_METADATA, LONGEST_KEY, LONGEST_VALUE = 64, 64, 1024
MOST_TOOLS, LONGEST_TOOL = 64, 200
MEMBERS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TOOL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/*-]*(\([ -'*-~]*\))?")
_LISTED = re.compile(r"[^\s,()]*\([^()]*\)|[^\s,]+")
_GRANTABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BINARY = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
_LINES = "\t\n\r\f"


def is_name(text: str) -> bool:
    """Whether `text` is a valid skill name: 1 to 64 lower-case letters, digits and single hyphens between them."""
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return the name if it is valid; raises ValidationFailed otherwise."""
    if not is_name(name):
        message = Sentence(
            "%(name)s is not a valid skill name; use at most 64 lower-case letters, digits and single hyphens between them",
            name=repr(name[:80]),
        )
        raise ValidationFailed(message, pointer="/name")
    return name


def is_grantable(tool: str) -> bool:
    """Whether a requested tool can be granted: only a plain name, since arguments and wildcards are left to policies."""
    return _GRANTABLE.fullmatch(tool) is not None


def parse_skill(name: str, files: Mapping[str, bytes]) -> ParsedSkill:
    """Parse the skill `name` from its files, keyed by path relative to its folder.

    Raises ValidationFailed with a detail for each problem (pointers `/files/<path>`), PayloadTooLarge, ApiKeyLeaked.
    """
    check_name(name)
    check_limits(len(files), sum(len(content) for content in files.values()))
    reader = _Reader()
    described = [reader.describe(path, content) for path, content in files.items()]
    front, instructions = reader.split(files.get(SKILL_FILE))
    if not reader.problems or front:
        reader.check(name, front)
    reader.refuse()
    ordered = tuple(sorted(described, key=lambda file: file.path.encode()))
    return ParsedSkill(
        name=name, description=_line(front, "description"), license=_line(front, "license"),
        compatibility=_line(front, "compatibility"), metadata=front.get("metadata", {}),
        requested_tools=tuple(reader.tools(front.get("allowed-tools", ""))), instructions=instructions, files=ordered,
        digest=digest_of(ordered), contents=dict(files),
    )  # fmt: skip


def _line(front: Mapping[str, Any], member: str) -> str:
    """A front matter text on one line, so that it cannot pose as another item of the list in the prompt."""
    return " ".join(front.get(member, "").split())


def check_limits(files: int, size: int) -> None:
    """Raise PayloadTooLarge if a skill has too many files or bytes."""
    if files > MOST_FILES:
        raise PayloadTooLarge(Sentence("a skill may have at most %(most_files)s files", most_files=MOST_FILES))
    if size > LARGEST_SET:
        raise PayloadTooLarge(Sentence("a skill may have at most %(largest_set)s MiB", largest_set=LARGEST_SET >> 20))


def decode_text(content: bytes) -> str | None:
    """Decode UTF-8 text; returns None for binary content, including text with control characters."""
    try:
        text = content.decode("utf8")
    except UnicodeDecodeError:
        return None
    return None if _BINARY.search(text) else text


def instructions_of(content: bytes) -> str:
    """The text after the front matter of a stored, and therefore valid, SKILL.md."""
    return _split(content.decode("utf8"))[1]


def _split(text: str) -> tuple[str, str]:
    """Split a SKILL.md into front matter and instructions; raises ValidationFailed."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise ValidationFailed("it must begin with a line --- and front matter with name and description")
    for index, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return "\n".join(lines[1:index]), "\n".join(lines[index + 1 :]).strip("\r\n")
    raise ValidationFailed("its front matter is not closed by a line ---")


def _texts(value: Any) -> Iterator[str]:
    """Every text in the value, including the names of members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value:
            yield from _texts(each)
        yield from _texts(list(value.values()) if isinstance(value, dict) else "")


class _Reader:
    """Checks the files of a skill and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[Detail] = []
        self._paths = Paths("the skill")

    def problem(self, path: str, message: str, *, code: str = "validation_failed") -> None:
        self.problems.append(
            Detail(f"/files/{path[:200]}", code, Sentence("%(path)s: %(message)s", path=path[:100], message=message))
        )

    def refuse(self) -> None:
        if self.problems:
            more = f" (and {len(self.problems) - 1} more, see details)" if len(self.problems) > 1 else ""
            leaked = any(each.code == ApiKeyLeaked.code for each in self.problems)
            error = ApiKeyLeaked if leaked else ValidationFailed
            raise error(f"the skill is not valid; {self.problems[0].message}{more}", details=self.problems[:100])

    def describe(self, path: str, content: bytes) -> SkillFile:
        try:
            self._paths.add(path)
            if any(part.startswith(".") for part in path.split("/")):
                raise ValidationFailed(Sentence("%(path)s is a hidden file; remove it", path=repr(path[:100])))
        except ApplianceError as error:
            self.problem(ascii(path)[1:-1], error.message, code=error.code)
        if len(content) > LARGEST_FILE:
            self.problem(path, f"a file may have at most {LARGEST_FILE >> 20} MiB", code="payload_too_large")
        if contains_key([content]):
            self.problem(path, "it contains an API key, which models would read; revoke the key", code=ApiKeyLeaked.code)
        text = decode_text(content)
        if text is not None:
            self.check_visible(path, text.removeprefix("\ufeff") if path != SKILL_FILE else text)
        return SkillFile(path, hashlib.sha256(content).hexdigest(), len(content), text is not None)

    def check_visible(self, path: str, text: str) -> None:
        index = find_invisible(text, allowed=_LINES)
        if index is not None:
            line, column = text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)
            message = (
                f"line {line}, column {column} contains {describe_character(text[index])}, invisible to people but read by models"
            )
            self.problem(path, f"{message}; remove it", code="unseen_character")

    def split(self, content: bytes | None) -> tuple[dict[str, Any], str]:
        """Return the members of the front matter, and the instructions."""
        if content is None:
            self.problem(SKILL_FILE, "the file is missing; a skill needs a file of exactly this name at its top", code="missing")
            return {}, ""
        text = decode_text(content)
        if text is None or len(content) > LARGEST_SKILL_FILE:
            most = LARGEST_SKILL_FILE >> 10
            self.problem(SKILL_FILE, f"it must be UTF-8 text of at most {most} KiB; move details to references/")
            return {}, ""
        try:
            front, instructions = _split(text)
            if len(front.encode()) > LARGEST_FRONT:
                raise ValidationFailed(
                    Sentence("its front matter may have at most %(largest_front)s KiB", largest_front=LARGEST_FRONT >> 10)
                )
            members = yaml12.load_texts(front)[0]
        except ValidationFailed as error:
            self.problem(SKILL_FILE, error.message)
            return {}, ""
        except yaml12.YamlInvalid as error:
            self.problem(SKILL_FILE, f"line {error.line + 1}: {error.message}", code="invalid_yaml")
            return {}, ""
        if not isinstance(members, dict):
            self.problem(SKILL_FILE, "its front matter must be a mapping with name and description")
            return {}, ""
        return members, instructions

    def check(self, folder: str, front: dict[str, Any]) -> None:
        for member in front:
            if member not in MEMBERS:
                message = f"{member[:60]!r} is not allowed in the front matter, only {', '.join(MEMBERS)}; put it in metadata"
                self.problem(SKILL_FILE, message, code="unknown_member")
        self.text(front, "name", LONGEST_NAME, required=True)
        self.text(front, "description", LONGEST_DESCRIPTION, required=True)
        self.text(front, "license", LONGEST_LICENSE)
        self.text(front, "compatibility", LONGEST_COMPATIBILITY)
        name = front.get("name")
        if isinstance(name, str) and name and name != folder:
            self.problem(
                SKILL_FILE, f"its name is {ascii(name)[:80]}, but its folder is {folder!r}; make them equal", code="invalid_name"
            )
        self.metadata(front.get("metadata", {}))
        for text in _texts(front):  # escape sequences can produce characters that the file itself does not contain
            if (index := find_invisible(text, allowed="\t\n")) is not None:
                character = describe_character(text[index])
                message = f"its front matter contains {character}, invisible to people but read by models; remove it"
                self.problem(SKILL_FILE, message, code="unseen_character")
        try:
            list(self.tools(front.get("allowed-tools", "")))
        except ValidationFailed as error:
            self.problem(SKILL_FILE, error.message)

    def text(self, front: dict[str, Any], member: str, longest: int, *, required: bool = False) -> None:
        value = front.get(member)
        if member not in front and not required:
            return
        if not isinstance(value, str) or not value.strip() or len(value) > longest:
            self.problem(SKILL_FILE, f"{member} must be a text of 1 to {longest} characters")

    def metadata(self, value: Any) -> None:
        fits = isinstance(value, dict) and len(value) <= MOST_METADATA
        if not fits or not all(
            isinstance(text, str) and len(text) <= LONGEST_VALUE and 1 <= len(key) <= LONGEST_KEY for key, text in value.items()
        ):
            message = f"metadata must be a mapping of at most {MOST_METADATA} names to texts of at most {LONGEST_VALUE} characters"
            self.problem(SKILL_FILE, message)

    def tools(self, value: Any) -> Iterator[str]:
        """Yield the requested tools without duplicates; raises ValidationFailed."""
        listed = _LISTED.findall(value) if isinstance(value, str) else value
        if not isinstance(listed, list) or len(listed) > MOST_TOOLS:
            raise ValidationFailed(
                Sentence("allowed-tools must list at most %(most_tools)s tools, separated by spaces", most_tools=MOST_TOOLS)
            )
        for tool in dict.fromkeys(each for each in listed if isinstance(each, str)):
            if len(tool) > LONGEST_TOOL or not _TOOL.fullmatch(tool):
                raise ValidationFailed(Sentence("allowed-tools: %(tool)s is not a tool name", tool=ascii(tool)[:80]))
            yield tool
        if not all(isinstance(each, str) for each in listed):
            raise ValidationFailed("allowed-tools must contain only texts")
