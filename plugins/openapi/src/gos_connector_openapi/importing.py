"""Imports the actions of a document in a worker process, so that a hostile document can only crash that process."""

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
from gos_connector_openapi.document import CHOOSE_OPERATIONS, MAX_BYTES

_AT_ONCE = threading.BoundedSemaphore(2)
_READER_SETTINGS = ("base_url", "document_url", "effects", "paging", "answers", "only_tags", "only_paths")


def import_actions(content: bytes, settings: Json, ctx: Context) -> list[Action]:
    """The document's operations as actions.

    ConfigError when the document cannot be used, TransientError when it was not read in time.
    """
    if len(content) > MAX_BYTES:
        raise ConfigError(f"The document has more than {MAX_BYTES >> 20} MB; leave out the parts you do not need.")
    options = {name: settings[name] for name in _READER_SETTINGS if name in settings}
    if not _AT_ONCE.acquire(timeout=max(0.0, ctx.deadline - time.monotonic())):
        raise TransientError("Other documents are being read; try again.")
    try:
        result = run_apart("gos_connector_openapi.worker", options, content, ctx.deadline)
    except TookTooLong as error:
        raise TransientError(f"The document was not read in time; try again, or {CHOOSE_OPERATIONS}.") from error
    finally:
        _AT_ONCE.release()
    return _actions(result, ctx)


def _actions(result: Apart, ctx: Context) -> list[Action]:
    actions: list[Action] = []
    for line in result.output.splitlines() if not result.failed else ():
        part = json.loads(line)
        if "refused" in part:
            raise ConfigError(part["refused"])
        if "end" in part:
            ctx.log("info", f"The document has {len(actions)} operations.", {"memory_kb": part["memory_kb"]})
            return actions
        actions.append(_action(part["action"]))
    if result.last_words and "MemoryError" not in result.last_words:
        raise SystemFailure("The process that reads documents crashed.", details={"error": result.last_words})
    raise ConfigError(f"Reading the document takes more time or memory than is allowed; {CHOOSE_OPERATIONS}, or remove the others.")


def _action(parts: Mapping[str, Any]) -> Action:
    return Action(
        name=parts["name"], summary=parts["summary"], input=parts["input"], output=parts["output"], effect=parts["effect"],
        sample=parts["sample"], plan=parts["plan"],
    )
