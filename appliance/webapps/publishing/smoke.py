"""The `smoke` checks of a version: what they ask for, read from its settings, and whether an answer is as it should be; pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence

MOST_CHECKS, MOST_HEADERS = 20, 10
LONGEST_PATH = LONGEST_TEXT = 500
MOST_MS = 10_000  # an answer that takes longer is not waited for
MEMBERS = ("path", "method", "status", "contains", "header", "max_ms")
EXCERPT = 500
_PATH = re.compile(r"/(?!/)[^\s\x00-\x1f\x7f#\\]*")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")


@dataclass(frozen=True)
class Check:
    """One request and what must be true of its answer; `header` are whole values by name."""

    path: str
    method: str = "GET"
    status: int = 200
    contains: str | None = None
    header: Mapping[str, str] = field(default_factory=dict)
    max_ms: int | None = None


@dataclass(frozen=True)
class Seen:
    """An answer: header names in lower case, the beginning of the body; `problem` says why there is none."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    ms: int
    problem: str | None = None


def parse_smoke(given: object) -> list[dict[str, Any]]:
    """The checks as they are stored; ValidationFailed with a pointer to every one that is wrong."""
    if given is None:
        return []
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise ValidationFailed("smoke is a list of checks such as {path: /, contains: Welcome}", pointer="/smoke")
    if len(given) > MOST_CHECKS:
        raise ValidationFailed(
            Sentence("a version has at most %(most_checks)s smoke checks", most_checks=MOST_CHECKS), pointer="/smoke"
        )
    problems = [
        Detail(f"/smoke/{index}{pointer}", "validation_failed", message)
        for index, check in enumerate(given)
        for pointer, message in _problems(check)
    ]
    if problems:
        raise ValidationFailed(
            Sentence("the smoke checks are not valid: %(message)s", message=problems[0].message), details=problems
        )
    return [{name: check[name] for name in MEMBERS if check.get(name) is not None} for check in given]


def checks_of(stored: Sequence[Mapping[str, Any]]) -> list[Check]:
    """What `parse_smoke` answered, as checks."""
    return [Check(**check) for check in stored]


def _problems(check: object) -> list[tuple[str, str]]:
    if not isinstance(check, Mapping):
        return [("", "a check is a mapping with a path")]
    found = [(f"/{name}", f"a check has {', '.join(MEMBERS)}") for name in map(str, check) if name not in MEMBERS]
    path, contains = check.get("path"), check.get("contains")
    if not isinstance(path, str) or len(path) > LONGEST_PATH or not _PATH.fullmatch(path):
        found.append(("/path", "path is a path of the app that begins with one /, such as /, without spaces"))
    if check.get("method") not in (None, "GET", "HEAD"):
        found.append(("/method", "method is GET or HEAD: a check changes nothing"))
    if not _is_whole(check.get("status"), 200, 599):
        found.append(("/status", "status is a whole number from 200 to 599"))
    if not _is_whole(check.get("max_ms"), 1, MOST_MS):
        found.append(("/max_ms", f"max_ms is a whole number of milliseconds up to {MOST_MS}"))
    if contains is not None and (not isinstance(contains, str) or not 0 < len(contains) <= LONGEST_TEXT or "\0" in contains):
        found.append(("/contains", f"contains is a text of up to {LONGEST_TEXT} characters"))
    elif contains is not None and check.get("method") == "HEAD":
        found.append(("/contains", "the answer to HEAD has no body; ask with GET"))
    return found + _header_problems(check.get("header"))


def _is_whole(value: object, least: int, most: int) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and least <= value <= most)


def _header_problems(header: object) -> list[tuple[str, str]]:
    if header is None:
        return []
    if not isinstance(header, Mapping) or len(header) > MOST_HEADERS:
        return [("/header", f"header is a mapping of up to {MOST_HEADERS} names to the whole value of each")]
    return [
        (f"/header/{str(name)[:60]}", "a header has a name and its whole value as a text")
        for name, value in header.items()
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(value, str) or len(value) > LONGEST_TEXT
    ]


def problem_of(check: Check, seen: Seen) -> str | None:
    """What is wrong with an answer, in a sentence; None when it is as it should be."""
    if seen.problem is not None:
        return seen.problem
    if seen.status != check.status:
        return f"answered {seen.status} instead of {check.status}"
    for name, value in check.header.items():
        found = seen.headers.get(name.lower())
        if found is None:
            return f"the header {name} is missing"
        if found != value:
            return f"the header {name} is {found[:200]!r} instead of {value!r}"
    if check.contains is not None and check.contains.encode() not in seen.body:
        return f"{check.contains!r} is not in the answer"
    if check.max_ms is not None and seen.ms > check.max_ms:
        return f"took {seen.ms} ms, {check.max_ms} are allowed"
    return None


def evidence(phase: str, check: Check, seen: Seen) -> dict[str, Any]:
    """What is kept of a check: of one that failed the beginning of what was seen too."""
    problem = problem_of(check, seen)
    told: dict[str, Any] = {
        "phase": phase, "method": check.method, "path": check.path, "status": seen.status or None, "ms": seen.ms,
        "outcome": "failed" if problem else "passed",
    }  # fmt: skip
    if problem:
        told |= {"problem": problem, "seen": seen.body[: 4 * EXCERPT].decode("utf8", "replace")[:EXCERPT]}
    return told
