"""The options that any step may carry, read from a definition: trying again, going on after a failure, keeping outputs."""

from collections.abc import Mapping
from typing import Any

from .nodes import BLOCK_KINDS, FAILURE_CLASSES, Cache, Retry
from .reading import Reader

OPTIONS = ("id", "name", "when", "retry", "continue_on_error", "cache", "undo", "limits", "timeout", "grants", "input", "mock")
NEVER_KEPT = ("agent", "human", "process", "wait", "stop", *BLOCK_KINDS)
ON_ERROR = ("stop", "continue", "collect")
RETRIED_CLASSES = ("connector", "timeout", "system")
_RETRY = ("max_attempts", "backoff", "initial", "max", "jitter", "classes")


def read_retry(reader: Reader, value: Any, pointer: str, kind: str) -> tuple[Retry, ...]:
    """One policy, or a list of policies for different failure classes."""
    if value is None:
        return ()
    if kind in BLOCK_KINDS:
        reader.problem(pointer, f"a {kind} is not retried as a whole; give `retry` to the steps in it")
    if not isinstance(value, list):
        return (_policy(reader, value, pointer, ("max_attempts",)),)
    policies = [_policy(reader, each, f"{pointer}/{index}", ("max_attempts", "classes")) for index, each in enumerate(value)]
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        for name in policy.classes:
            if name in seen:
                reader.problem(f"{pointer}/{index}/classes", f"{name} has a policy already; a failure class has one")
        seen |= set(policy.classes)
    return tuple(policies)


def _policy(reader: Reader, value: Any, pointer: str, required: tuple[str, ...]) -> Retry:
    given = reader.mapping(value, pointer, _RETRY, required)
    jitter = given.get("jitter", True)
    if not isinstance(jitter, bool):
        reader.problem(f"{pointer}/jitter", "this must be true or false")
    backoff = reader.choice(given.get("backoff", "exponential"), f"{pointer}/backoff", ("constant", "exponential"))
    return Retry(
        reader.whole(given.get("max_attempts"), f"{pointer}/max_attempts", 1, 100) or 1,
        "constant" if backoff == "constant" else "exponential",
        reader.duration(given.get("initial", "1s"), f"{pointer}/initial") or 0,
        reader.duration(given.get("max", "1m"), f"{pointer}/max") or 0, bool(jitter),
        _classes(reader, given.get("classes", list(RETRIED_CLASSES)), f"{pointer}/classes"),
    )  # fmt: skip


def read_continue(reader: Reader, value: Any, pointer: str) -> tuple[str, ...]:
    """The failure classes after which the process goes on."""
    if value is None or isinstance(value, bool):
        return FAILURE_CLASSES if value else ()
    if isinstance(value, list):
        return _classes(reader, value, pointer)
    reader.problem(pointer, "this must be true, false, or a list of failure classes")
    return ()


def read_cache(reader: Reader, step: Mapping[str, Any], pointer: str, kind: str) -> Cache | None:
    """For how long and under which key the step's output is kept for other executions."""
    if step.get("cache") is None:
        return None
    settings = step[kind] if isinstance(step[kind], dict) else {}
    if kind in NEVER_KEPT or (kind == "datapool" and not {"find", "query"} & settings.keys()):
        what = "writes to DataPool" if kind == "datapool" else kind
        reader.problem(pointer, f"what {what} comes to is not kept: it must happen in every execution; take `cache` out")
    given = reader.mapping(step["cache"], pointer, ("ttl", "key"), ("ttl",))
    key = reader.template(given["key"], f"{pointer}/key") if given.get("key") is not None else None
    if kind == "rule" and "expression" in settings and key is None:
        reader.problem(pointer, "an expression sees everything; say with `key` what it depends on")
    ttl = reader.duration(given.get("ttl", "1s"), f"{pointer}/ttl", least=1)
    if "ttl" in given and given["ttl"] is None:
        reader.problem(f"{pointer}/ttl", "this must be a duration such as 1h")
    return None if ttl is None else Cache(ttl, key)


def _classes(reader: Reader, value: Any, pointer: str) -> tuple[str, ...]:
    names = reader.texts(value, pointer)
    return tuple(reader.choice(name, f"{pointer}/{index}", FAILURE_CLASSES) for index, name in enumerate(names))
