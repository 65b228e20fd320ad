"""The worker process: loads one operation, drops all privileges, performs it and exits."""

import errno
import json
import os
import resource
import sys
import traceback
from typing import Any, NoReturn

from appliance.core.confinement import confinement, landlock
from appliance.core.confinement.syscalls import confine_calls
from appliance.core.sentences import Sentence

from .errors import ContentTooLarge, FormatFailed
from .operations import OPERATIONS
from .request import Limits, Request


def main(arguments: list[str]) -> None:
    settings = json.loads(arguments[0])
    run(settings)


def run(settings: dict[str, Any]) -> NoReturn:
    """Perform the operation in this process, then exit."""
    confinement.die_with_parent(settings["parent"])
    confinement.confine(settings["address_space"], settings["written_bytes"])
    resource.setrlimit(resource.RLIMIT_CPU, (settings["cpu_seconds"], settings["cpu_seconds"]))
    with os.fdopen(settings["answer"], "w", encoding="utf8") as answer:
        answer.write(json.dumps(_build_answer(settings)))
    os._exit(0)


def _build_answer(settings: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"facts": _perform(settings)}
    except FormatFailed as failed:
        return _build_failure(failed.code, failed.failure_class, failed.message)
    except MemoryError:
        return _build_failure(
            "content_memory",
            "memory",
            Sentence(
                "processing the content needs more memory than the limit of %(memory_mb)s MB", memory_mb=settings["memory_mb"]
            ),
        )
    except OSError as error:
        if error.errno == errno.EFBIG:
            too_large = ContentTooLarge(f"the result would be larger than the limit of {settings['written_bytes'] >> 20} MB")
            return _build_failure(too_large.code, too_large.failure_class, too_large.message)
        return _build_fault()
    except Exception:  # noqa: BLE001  sent to the appliance, which logs it
        return _build_fault()


def _build_failure(code: str, failure_class: str, message: str) -> dict[str, Any]:
    return {"failed": {"code": code, "failure_class": failure_class, "message": message}}


def _build_fault() -> dict[str, Any]:
    return {"fault": traceback.format_exc()[-4000:]}


def _perform(settings: dict[str, Any]) -> dict[str, Any]:
    operation = OPERATIONS[settings["operation"]]
    options = json.load(sys.stdin)
    operation.load()
    confinement.become_nobody(settings["user"])
    landlock.reach_nothing()
    confine_calls(True)
    inputs = [os.fdopen(descriptor, "rb") for descriptor in settings["inputs"]]
    for each in inputs:
        each.seek(0)
    output = os.fdopen(settings["output"], "wb")
    request = Request(options, inputs, output, Limits(settings["files"], settings["written_bytes"]))
    facts = operation.perform(request)
    output.flush()
    return facts
