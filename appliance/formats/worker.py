"""The worker process: loads what one operation needs, gives up everything else, performs it, and ends."""

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

from .failing import ContentTooLarge, FormatFailed
from .operations import OPERATIONS
from .request import Limits, Request


def main(arguments: list[str]) -> None:
    settings = json.loads(arguments[0])
    work(settings)


def work(settings: dict[str, Any]) -> NoReturn:
    """What `main` does, in a process that has been made for it."""
    confinement.die_with_parent(settings["parent"])
    confinement.confine(settings["address_space"], settings["written_bytes"])
    resource.setrlimit(resource.RLIMIT_CPU, (settings["cpu_seconds"], settings["cpu_seconds"]))
    with os.fdopen(settings["answer"], "w", encoding="utf8") as answer:
        answer.write(json.dumps(_answer(settings)))
    os._exit(0)


def _answer(settings: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"facts": _perform(settings)}
    except FormatFailed as failed:
        return _failed(failed.code, failed.failure_class, failed.message)
    except MemoryError:
        return _failed(
            "content_memory",
            "memory",
            Sentence("the content takes more than the %(memory_mb)s MB this step may use", memory_mb=settings["memory_mb"]),
        )
    except OSError as error:
        if error.errno == errno.EFBIG:
            too_large = ContentTooLarge(f"more than {settings['written_bytes'] >> 20} MB would come of the content")
            return _failed(too_large.code, too_large.failure_class, too_large.message)
        return _fault()
    except Exception:  # noqa: BLE001  told to the appliance, which logs it
        return _fault()


def _failed(code: str, failure_class: str, message: str) -> dict[str, Any]:
    return {"failed": {"code": code, "failure_class": failure_class, "message": message}}


def _fault() -> dict[str, Any]:
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
