"""Parses the options any step may have: retries, continuing after a failure, caching outputs."""

from collections.abc import Mapping
from typing import Any

from .nodes import BLOCK_KINDS, FAILURE_CLASSES, Cache, Retry
from .reader import Reader

OPTIONS = ("id", "name", "when", "retry", "continue_on_error", "cache", "undo", "limits", "timeout", "grants", "input", "mock")
NEVER_CACHED = ("agent", "human", "process", "wait", "stop", *BLOCK_KINDS)
ON_ERROR = ("stop", "continue", "collect")
RETRIED_CLASSES = ("connector", "timeout", "system")
_RETRY = ("max_attempts", "backoff", "initial", "max", "jitter", "classes")


def parse_retry(reader: Reader, value: Any, pointer: str, kind: str) -> tuple[Retry, ...]:
    """One policy, or a list of policies for different failure classes."""
    if value is None:
        return ()
    if kind in BLOCK_KINDS:
        reader.problem(pointer, f"a {kind} cannot be retried as a whole; set `retry` on the steps in it")
    if not isinstance(value, list):
        return (_policy(reader, value, pointer, ("max_attempts",)),)
    policies = [_policy(reader, each, f"{pointer}/{index}", ("max_attempts", "classes")) for index, each in enumerate(value)]
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        for name in policy.classes:
            if name in seen:
                reader.problem(f"{pointer}/{index}/classes", f"{name} already has a policy; a failure class has only one")
        seen |= set(policy.classes)
    return tuple(policies)


def _policy(reader: Reader, value: Any, pointer: str, required: tuple[str, ...]) -> Retry:
    members = reader.mapping(value, pointer, _RETRY, required)
    jitter = members.get("jitter", True)
    if not isinstance(jitter, bool):
        reader.problem(f"{pointer}/jitter", "this must be true or false")
    backoff = reader.choice(members.get("backoff", "exponential"), f"{pointer}/backoff", ("constant", "exponential"))
    return Retry(
        reader.integer(members.get("max_attempts"), f"{pointer}/max_attempts", 1, 100) or 1,
        "constant" if backoff == "constant" else "exponential",
        reader.duration(members.get("initial", "1s"), f"{pointer}/initial") or 0,
        reader.duration(members.get("max", "1m"), f"{pointer}/max") or 0, bool(jitter),
        _classes(reader, members.get("classes", list(RETRIED_CLASSES)), f"{pointer}/classes"),
    )  # fmt: skip


def parse_continue(reader: Reader, value: Any, pointer: str) -> tuple[str, ...]:
    """The failure classes after which the process continues."""
    if value is None or isinstance(value, bool):
        return FAILURE_CLASSES if value else ()
    if isinstance(value, list):
        return _classes(reader, value, pointer)
    reader.problem(pointer, "this must be true, false, or a list of failure classes")
    return ()


def parse_cache(reader: Reader, step: Mapping[str, Any], pointer: str, kind: str) -> Cache | None:
    """How long and under which key the step's output is cached across executions; None without a cache."""
    if step.get("cache") is None:
        return None
    settings = step[kind] if isinstance(step[kind], dict) else {}
    if kind in NEVER_CACHED or (kind == "datapool" and not {"find", "query"} & settings.keys()):
        what = "writes to DataPool" if kind == "datapool" else kind
        reader.problem(pointer, f"{what} cannot be cached, it must run in every execution; remove `cache`")
    members = reader.mapping(step["cache"], pointer, ("ttl", "key"), ("ttl",))
    key = reader.template(members["key"], f"{pointer}/key") if members.get("key") is not None else None
    if kind == "rule" and "expression" in settings and key is None:
        reader.problem(pointer, "an expression can read everything; set `key` to what its value depends on")
    ttl = reader.duration(members.get("ttl", "1s"), f"{pointer}/ttl", minimum=1)
    if "ttl" in members and members["ttl"] is None:
        reader.problem(f"{pointer}/ttl", "this must be a duration such as 1h")
    return None if ttl is None else Cache(ttl, key)


def _classes(reader: Reader, value: Any, pointer: str) -> tuple[str, ...]:
    names = reader.texts(value, pointer)
    return tuple(reader.choice(name, f"{pointer}/{index}", FAILURE_CLASSES) for index, name in enumerate(names))
