"""The names in pages that tests hold on to are those that docs/qa.md promises."""

import re
from pathlib import Path

from tests.architecture.source_tree import ROOT

TEMPLATES = ROOT / "ui" / "templates"
GIVEN = re.compile(r'data-testid="([^"]*)"')
PROMISED = re.compile(r"^\| (.+?) \| (`[a-z-]+`(?:, `[a-z-]+`)*) \|$", re.MULTILINE)


def names_of(*templates: Path) -> str:
    found = sorted({name for path in templates for name in GIVEN.findall(path.read_text("utf8"))})
    return ", ".join(f"`{name}`" for name in found)


def test_docs_promise_what_the_pages_have() -> None:
    shared = [*sorted((TEMPLATES / "components").glob("*.html")), TEMPLATES / "console/frame.html"]
    given = {"every page": names_of(*shared)}
    for path in sorted((TEMPLATES / "console").rglob("*.html")):
        if path not in shared and (names := names_of(path)):
            given[path.relative_to(TEMPLATES / "console").with_suffix("").as_posix()] = names
    table_of_docs = (ROOT / "docs/qa.md").read_text("utf8").rpartition("|---|---|\n")[2]
    promised = dict(PROMISED.findall(table_of_docs))
    table = "\n".join(f"| {page} | {names} |" for page, names in given.items())
    assert promised == given, f"the table of docs/qa.md should be:\n{table}"
