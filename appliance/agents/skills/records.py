"""The data types of skills that other modules use."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from appliance.governance import SkillUsed

Trust = Literal["trusted", "untrusted"]


@dataclass(frozen=True)
class SkillFile:
    """A file of a skill; only files with `is_text` are ever sent to a model."""

    path: str
    sha256: str
    size: int
    is_text: bool


@dataclass(frozen=True)
class ParsedSkill:
    """A validated skill; `instructions` is SKILL.md without its front matter, `files` are sorted as the digest requires."""

    name: str
    description: str
    license: str
    compatibility: str
    metadata: Mapping[str, str]
    requested_tools: tuple[str, ...]
    instructions: str = field(repr=False)
    files: tuple[SkillFile, ...]
    digest: str
    contents: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True)
class SkillSummary:
    """The description of a skill that a model sees before it loads one."""

    name: str
    description: str
    version_digest: str
    trust: Trust


@dataclass(frozen=True)
class Grant:
    """A person's approval of one digest of a skill, with the tools they granted it; `at` is in epoch milliseconds."""

    digest: str
    tools: tuple[str, ...]
    by: str
    login: str
    at: int


@dataclass(frozen=True)
class Skill:
    """A skill in its current version.  A `grant` of an earlier digest has no effect; times are epoch milliseconds."""

    name: str
    description: str
    version_digest: str
    license: str
    compatibility: str
    metadata: Mapping[str, str]
    requested_tools: tuple[str, ...]
    files: int
    bytes: int
    created_at: int
    updated_at: int
    updated_by: str
    grant: Grant | None = None

    @property
    def trust(self) -> Trust:
        return "trusted" if self.grant is not None and self.grant.digest == self.version_digest else "untrusted"

    @property
    def granted_tools(self) -> tuple[str, ...]:
        return self.grant.tools if self.grant is not None and self.trust == "trusted" else ()


@dataclass(frozen=True)
class LoadedSkill:
    """The result of loading a skill (docs/contract.md § 12); `content` is set if one of its text files was requested."""

    skill: Skill
    instructions: str = field(repr=False)
    files: tuple[SkillFile, ...]
    content: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.skill.name

    @property
    def description(self) -> str:
        return self.skill.description

    @property
    def version_digest(self) -> str:
        return self.skill.version_digest

    @property
    def requested_tools(self) -> tuple[str, ...]:
        return self.skill.requested_tools

    @property
    def granted_tools(self) -> tuple[str, ...]:
        return self.skill.granted_tools

    @property
    def trust(self) -> Trust:
        return self.skill.trust

    @property
    def used(self) -> SkillUsed:
        """The record of this skill for a run that has loaded it."""
        return SkillUsed(self.name, self.version_digest, self.trust == "trusted")

    def document(self) -> dict[str, Any]:
        """The JSON form (docs/contract.md § 12); without `content` if no file was requested."""
        document: dict[str, Any] = {
            "name": self.name, "description": self.description, "version_digest": self.version_digest,
            "instructions": self.instructions, "files": [file_document(file) for file in self.files],
            "requested_tools": list(self.requested_tools), "granted_tools": list(self.granted_tools), "trust": self.trust,
        }  # fmt: skip
        return document if self.content is None else document | {"content": self.content}


def file_document(file: SkillFile) -> dict[str, Any]:
    """The JSON form of a file in a list of files."""
    return {"path": file.path, "sha256": file.sha256, "size": file.size, "kind": "text" if file.is_text else "binary"}


def digest_of(files: Iterable[SkillFile]) -> str:
    """The digest of a set of files, prefixed with `sha256:`.

    It hashes the lines `<sha256>  <path>`, each ended by a line feed, sorted by the paths' UTF-8 bytes: the same value that
    `find * -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum` prints inside the folder.
    """
    lines = (f"{file.sha256}  {file.path}\n".encode() for file in sorted(files, key=lambda each: each.path.encode()))
    return f"sha256:{hashlib.sha256(b''.join(lines)).hexdigest()}"
