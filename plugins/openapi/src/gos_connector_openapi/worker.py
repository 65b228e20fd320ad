"""`python -m gos_connector_openapi.worker`: reads one document within limits, writes its actions to stdout, and exits."""

import json
import sys
from collections.abc import Iterator
from typing import Any

from appliance.connectors.contract import memory_used_kb, stand_apart
from gos_connector_openapi.document import CHOOSE_OPERATIONS, UnusableDocument, parse
from gos_connector_openapi.operations import Reader

MEMORY_MB = 400
CPU_SECONDS = 40
_MAX_OUTPUT_BYTES = 96 << 20


def main() -> None:
    """Write one JSON object per line: an action, the reason why the document is refused, or the end marker."""
    try:
        settings, content = stand_apart(MEMORY_MB, CPU_SECONDS)
        written = 0
        for line in _answer_lines(settings, content):
            written += len(line)
            if written > _MAX_OUTPUT_BYTES:
                raise UnusableDocument(f"The operations of the document are too large; {CHOOSE_OPERATIONS}.")
            sys.stdout.write(line)
    except UnusableDocument as error:
        _refuse(str(error))
    except RecursionError:
        _refuse("The document is nested too deeply.")
    except MemoryError:
        _refuse(f"Reading the document takes more than {MEMORY_MB} MB; remove the parts you do not need.")


def _refuse(sentence: str) -> None:
    sys.stdout.write(json.dumps({"refused": sentence}) + "\n")


def _answer_lines(settings: dict[str, Any], content: bytes) -> Iterator[str]:
    document = parse(content)
    for action in Reader(document, settings).read():
        yield json.dumps({"action": action}, separators=(",", ":")) + "\n"
    yield json.dumps({"end": True, "memory_kb": memory_used_kb()}) + "\n"


if __name__ == "__main__":
    main()
