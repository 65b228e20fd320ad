"""The recorded examples of the API: a request, its answer and a typical refusal for each operation.

`python -m tests.api.openapi.recording` writes the file, from real requests; it is read when the OpenAPI document is made.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES_FILE = Path(__file__).parent.parent / "examples.json"


@dataclass(frozen=True)
class RecordedExample:
    """One exchange with the appliance; what is not text or JSON has no `body` or `answer`."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    media: str = "application/json"
    body: Any = None
    status: int = 200
    answer: Any = None
    refusal_status: int = 0
    refusal: Any = None


NO_EXAMPLE = RecordedExample()


def load_examples() -> dict[str, RecordedExample]:
    """The examples by the name of their operation."""
    recorded = json.loads(EXAMPLES_FILE.read_text("utf-8"))
    return {name: RecordedExample(**members) for name, members in recorded.items()}
