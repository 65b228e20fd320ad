"""The test ids of the pages are those that docs/qa.md lists."""

import re
from pathlib import Path

from tests.architecture.source_tree import ROOT

TEMPLATES = ROOT / "ui" / "templates"
TEST_ID = re.compile(r'data-testid="([^"]*)"')
DOCUMENTED = re.compile(r"^\| (.+?) \| (`[a-z-]+`(?:, `[a-z-]+`)*) \|$", re.MULTILINE)


def list_test_ids(*templates: Path) -> str:
    names = sorted({name for path in templates for name in TEST_ID.findall(path.read_text("utf8"))})
    return ", ".join(f"`{name}`" for name in names)


def test_the_docs_list_the_test_ids_of_the_pages() -> None:
    shared = [*sorted((TEMPLATES / "components").glob("*.html")), TEMPLATES / "console/frame.html"]
    actual = {"every page": list_test_ids(*shared)}
    for path in sorted((TEMPLATES / "console").rglob("*.html")):
        if path not in shared and (names := list_test_ids(path)):
            actual[path.relative_to(TEMPLATES / "console").with_suffix("").as_posix()] = names
    table_of_docs = (ROOT / "docs/qa.md").read_text("utf8").rpartition("|---|---|\n")[2]
    documented = dict(DOCUMENTED.findall(table_of_docs))
    table = "\n".join(f"| {page} | {names} |" for page, names in actual.items())
    assert documented == actual, f"the table of docs/qa.md should be:\n{table}"
