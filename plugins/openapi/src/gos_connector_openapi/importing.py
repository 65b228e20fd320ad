"""From a document to actions, in a process of its own that a hostile document can only take down alone."""

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import (
    Action,
    Apart,
    ConfigError,
    Context,
    Json,
    SystemFailure,
    TookTooLong,
    TransientError,
    run_apart,
)
from gos_connector_openapi.document import CHOOSE, MOST_BYTES

_AT_ONCE = threading.BoundedSemaphore(2)
_WANTED = ("base_url", "document_url", "effects", "paging", "answers", "only_tags", "only_paths")


def import_actions(content: bytes, settings: Json, ctx: Context) -> list[Action]:
    """The document's operations as actions.

    ConfigError when it cannot be used, TransientError when it was not read in time.
    """
    if len(content) > MOST_BYTES:
        raise ConfigError(f"The document has more than {MOST_BYTES >> 20} MB; leave out the parts you do not need.")
    wanted = {name: settings[name] for name in _WANTED if name in settings}
    if not _AT_ONCE.acquire(timeout=max(0.0, ctx.deadline - time.monotonic())):
        raise TransientError("Other documents are being read and none was done in time; try again.")
    try:
        found = run_apart("gos_connector_openapi.worker", wanted, content, ctx.deadline)
    except TookTooLong as late:
        raise TransientError(f"The document was not read in time; try again, or {CHOOSE}.") from late
    finally:
        _AT_ONCE.release()
    return _actions(found, ctx)


def _actions(found: Apart, ctx: Context) -> list[Action]:
    actions: list[Action] = []
    for line in found.output.splitlines() if not found.failed else ():
        part = json.loads(line)
        if "refused" in part:
            raise ConfigError(part["refused"])
        if "end" in part:
            ctx.log("info", f"The document has {len(actions)} operations.", {"memory_kb": part["memory_kb"]})
            return actions
        actions.append(_action(part["action"]))
    if found.last_words and "MemoryError" not in found.last_words:
        raise SystemFailure("The reader of documents failed on its own.", details={"error": found.last_words})
    raise ConfigError(f"The document takes more time or memory to read than documents do; {CHOOSE}, or leave out the others.")


def _action(parts: Mapping[str, Any]) -> Action:
    return Action(
        parts["name"], parts["summary"], parts["input"], parts["output"], parts["effect"], parts["sample"], parts["plan"]
    )
