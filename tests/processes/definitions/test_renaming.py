"""Another path for a file of a draft."""

import pytest

from appliance.core.errors import ValidationFailed
from appliance.processes.definitions.file_renames import rename_file
from appliance.processes.definitions.versions import Draft

SOURCE = """# reads steps/a.ts and steps/a.ts.bak
name: It
steps:
  - id: one
    code: {language: typescript, file: steps/a.ts}
"""
STEP = {"id": "one", "code": {"language": "typescript", "file": "steps/a.ts"}}


def test_steps_follow_wherever_they_stand() -> None:
    inner = [STEP, {"id": "two", "rule": {"decision": "steps/a.ts"}}]
    draft = Draft({"steps": [{"id": "each", "for_each": {"items": "= 1", "steps": inner}}]}, {"steps/a.ts": "1", "b.ts": "2"})
    renamed = rename_file(draft, "steps/a.ts", "lib/c.ts")
    assert renamed.files == {"lib/c.ts": "1", "b.ts": "2"}
    named_steps = renamed.definition["steps"][0]["for_each"]["steps"]
    assert (named_steps[0]["code"]["file"], named_steps[1]["rule"]["decision"]) == ("lib/c.ts", "lib/c.ts")


def test_the_text_keeps_its_comments() -> None:
    draft = Draft({"id": "it", "name": "It", "steps": [STEP]}, {"steps/a.ts": "1"}, SOURCE)
    assert rename_file(draft, "steps/a.ts", "steps/b.ts").source == SOURCE.replace("steps/a.ts}", "steps/b.ts}").replace(
        "reads steps/a.ts and", "reads steps/b.ts and"
    )


def test_a_rename_that_would_change_the_meaning_of_the_text_is_refused() -> None:
    source = SOURCE.replace("name: It", "name: steps/a.ts")
    draft = Draft({"id": "it", "name": "steps/a.ts", "steps": [STEP]}, {"steps/a.ts": "1"}, source)
    with pytest.raises(ValidationFailed, match="change it there first"):
        rename_file(draft, "steps/a.ts", "steps/b.ts")
