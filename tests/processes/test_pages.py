"""The YAML that docs/processes.md and docs/processes/ show is accepted as it stands."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.core import yaml12
from appliance.processes.definitions.definition import parse_definition
from appliance.processes.triggers.kinds import PARSERS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "processes.md", *sorted((DOCS / "processes").glob("*.md"))]
BLOCK = re.compile(r"^```yaml\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = {"id": "only", "rule": {"expression": "= 1"}}


def examples() -> Iterator[Any]:
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            content = yaml12.load(match["text"])
            if "cases" not in content:  # a test table, which tests/processes/test_rules.py runs
                yield pytest.param(content, id=f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}")


def complete(content: Any) -> dict[str, Any]:
    """A whole definition around an example that shows only steps, triggers or options."""
    members = {"steps": content} if isinstance(content, list) else content
    return {"id": "p", "steps": [STEP], **members}


def files_in(value: Any) -> dict[str, str]:
    """Contents for the files that steps of the example name."""
    if isinstance(value, list):
        return {path: text for entry in value for path, text in files_in(entry).items()}
    if not isinstance(value, dict):
        return {}
    paths = [each for name, each in value.items() if name in ("file", "decision") and isinstance(each, str)]
    return dict.fromkeys(paths, "{}") | files_in(list(value.values()))


@pytest.mark.parametrize("content", list(examples()))
def test_an_example_of_the_pages_is_a_valid_definition(content: Any) -> None:
    parse_definition(complete(content), files_in(content))


def test_the_page_on_triggers_shows_every_kind() -> None:
    page = (DOCS / "processes" / "triggers.md").read_text("utf-8")
    definition = parse_definition(complete(yaml12.load(BLOCK.findall(page)[0])), {})
    assert [trigger.id for trigger in definition.triggers] == [
        "schedule", "webhook", "hub", "integration", "datapool", "process", "document",
    ]  # fmt: skip
    assert {trigger.kind for trigger in definition.triggers} == set(PARSERS)
