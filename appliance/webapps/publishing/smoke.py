"""The `smoke` checks of a version: parsing, and comparing responses with what is expected. Pure functions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence

MOST_CHECKS, MOST_HEADERS = 20, 10
LONGEST_PATH = LONGEST_TEXT = 500
MOST_MS = 10_000  # slower responses are not waited for
MEMBERS = ("path", "method", "status", "contains", "header", "max_ms")
EXCERPT = 500
_PATH = re.compile(r"/(?!/)[^\s\x00-\x1f\x7f#\\]*")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")


@dataclass(frozen=True)
class Check:
    """A request and the expected response; `header` maps names to complete values."""

    path: str
    method: str = "GET"
    status: int = 200
    contains: str | None = None
    header: Mapping[str, str] = field(default_factory=dict)
    max_ms: int | None = None


@dataclass(frozen=True)
class CheckResponse:
    """A response: header names in lower case, and the beginning of the body; `problem` says why there is none."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    ms: int
    problem: str | None = None


def parse_smoke(raw: object) -> list[dict[str, Any]]:
    """The validated checks as stored; ValidationFailed with a pointer to every invalid one."""
    if raw is None:
        return []
    if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
        raise ValidationFailed("smoke must be a list of checks such as {path: /, contains: Welcome}", pointer="/smoke")
    if len(raw) > MOST_CHECKS:
        raise ValidationFailed(
            Sentence("a version can have at most %(most_checks)s smoke checks", most_checks=MOST_CHECKS), pointer="/smoke"
        )
    problems = [
        Detail(f"/smoke/{index}{pointer}", "validation_failed", message)
        for index, check in enumerate(raw)
        for pointer, message in _find_problems(check)
    ]
    if problems:
        raise ValidationFailed(
            Sentence("the smoke checks are not valid: %(message)s", message=problems[0].message), details=problems
        )
    return [{name: check[name] for name in MEMBERS if check.get(name) is not None} for check in raw]


def load_checks(stored: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Checks from their stored form."""
    return [Check(**check) for check in stored]


def _find_problems(check: object) -> list[tuple[str, str]]:
    if not isinstance(check, Mapping):
        return [("", "a check must be an object with a path")]
    problems = [(f"/{name}", f"unknown field; a check has {', '.join(MEMBERS)}") for name in map(str, check) if name not in MEMBERS]
    path, contains = check.get("path"), check.get("contains")
    if not isinstance(path, str) or len(path) > LONGEST_PATH or not _PATH.fullmatch(path):
        problems.append(("/path", "path must be a path of the app that begins with a single / and has no spaces"))
    if check.get("method") not in (None, "GET", "HEAD"):
        problems.append(("/method", "method must be GET or HEAD"))
    if not _is_whole(check.get("status"), 200, 599):
        problems.append(("/status", "status must be a whole number from 200 to 599"))
    if not _is_whole(check.get("max_ms"), 1, MOST_MS):
        problems.append(("/max_ms", f"max_ms must be a whole number of milliseconds up to {MOST_MS}"))
    if contains is not None and (not isinstance(contains, str) or not 0 < len(contains) <= LONGEST_TEXT or "\0" in contains):
        problems.append(("/contains", f"contains must be text of up to {LONGEST_TEXT} characters"))
    elif contains is not None and check.get("method") == "HEAD":
        problems.append(("/contains", "a HEAD response has no body; use GET"))
    return problems + _header_problems(check.get("header"))


def _is_whole(value: object, minimum: int, maximum: int) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum)


def _header_problems(header: object) -> list[tuple[str, str]]:
    if header is None:
        return []
    if not isinstance(header, Mapping) or len(header) > MOST_HEADERS:
        return [("/header", f"header must be an object of up to {MOST_HEADERS} names and their complete values")]
    return [
        (f"/header/{str(name)[:60]}", "a header needs a valid name and its complete value as text")
        for name, value in header.items()
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(value, str) or len(value) > LONGEST_TEXT
    ]


def problem_of(check: Check, response: CheckResponse) -> str | None:
    """What is wrong with a response, or None."""
    if response.problem is not None:
        return response.problem
    if response.status != check.status:
        return f"answered {response.status} instead of {check.status}"
    for name, value in check.header.items():
        actual = response.headers.get(name.lower())
        if actual is None:
            return f"the header {name} is missing"
        if actual != value:
            return f"the header {name} is {actual[:200]!r} instead of {value!r}"
    if check.contains is not None and check.contains.encode() not in response.body:
        return f"{check.contains!r} is not in the response"
    if check.max_ms is not None and response.ms > check.max_ms:
        return f"took {response.ms} ms; the limit is {check.max_ms} ms"
    return None


def to_result(phase: str, check: Check, response: CheckResponse) -> dict[str, Any]:
    """The stored result of a check; a failed one includes the beginning of the response."""
    problem = problem_of(check, response)
    result: dict[str, Any] = {
        "phase": phase, "method": check.method, "path": check.path, "status": response.status or None, "ms": response.ms,
        "outcome": "failed" if problem else "passed",
    }  # fmt: skip
    if problem:
        result |= {"problem": problem, "seen": response.body[: 4 * EXCERPT].decode("utf8", "replace")[:EXCERPT]}
    return result
