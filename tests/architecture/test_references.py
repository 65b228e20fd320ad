"""References between pages, and from code to the contract, resolve: headings exist, and so do the numbered sections."""

import re
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, offences_in, project_files

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} +(?P<text>.+?)\s*$", re.MULTILINE)
LINK = re.compile(r"\]\((?P<path>[^)\s#:]*)#(?P<anchor>[^)\s]+)\)")
REFERENCE = re.compile(r"\bcontract(?P<file>\.md)?\)? § *(?P<number>\d+)", re.IGNORECASE)
SECTION = re.compile(r"^## (?P<number>\d+)\. ", re.MULTILINE)
PATH = re.compile(r"`(?P<path>(?:appliance|tests|plugins|ui|packaging|docs)/[\w./-]*\w/?)`")
PACKAGE = re.compile(r"^\| `(\w+)` \| [^|]+ \| (`[^|]+`) \|$", re.MULTILINE)
EXAMPLE_FILES = {  # what the walks of CONTRIBUTING add
    "appliance/processes/steps/join.py", "appliance/console/pages/settings/storage.py", "ui/templates/console/storage.html",
    "appliance/migrations/m0102_document_description.py",
}  # fmt: skip
TEXTS = {".py", ".js", ".ts", ".md", ".html", ".sh", ".yaml", ".toml"}


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = HEADING.finditer(FENCED.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading["text"].lower()).replace(" ", "-") for heading in headings}


def broken_anchors(page: Path) -> list[str]:
    links = [(link["path"], link["anchor"]) for link in LINK.finditer(INLINE.sub("", FENCED.sub("", page.read_text("utf-8"))))]
    targets = [(page.parent / path if path else page, anchor) for path, anchor in links]
    return [f"{target.name}#{anchor}" for target, anchor in targets if anchor not in anchors_of(target)]


def wrong_sections(path: Path) -> list[str]:
    """References to sections that do not exist, and in code those that do not name the file."""
    known = set(SECTION.findall((ROOT / "docs" / "contract.md").read_text("utf-8")))
    references = list(REFERENCE.finditer(path.read_text("utf-8")))
    return [
        each[0] for each in references if each["number"] not in known or (path.suffix != ".md" and each["file"] is None)
    ]  # fmt: skip


def missing_paths(page: Path) -> list[str]:
    """Paths of the project that a page names and that do not exist, but for the files that its walks create."""
    paths = [match["path"] for match in PATH.finditer(page.read_text("utf-8"))]
    return [path for path in paths if path not in EXAMPLE_FILES and not (ROOT / path).exists()]


def test_links_to_headings_lead_to_one() -> None:
    pages = [path for path in project_files() if path.suffix == ".md"]
    assert offences_in(pages, broken_anchors) == {}


def test_references_to_the_contract_resolve() -> None:
    texts = [path for path in project_files() if path.suffix in TEXTS]
    assert sum(len(REFERENCE.findall(path.read_text("utf-8"))) for path in texts) > 10
    assert offences_in(texts, wrong_sections) == {}


def test_files_that_contributors_are_sent_to_exist() -> None:
    pages = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / f"{name}.md" for name in ("architecture", "testing", "performance"))]
    assert offences_in(pages, missing_paths) == {}


def test_every_package_is_in_the_architecture_with_files_that_exist() -> None:
    rows = PACKAGE.findall((ROOT / "docs" / "architecture.md").read_text("utf-8"))
    packages = {path.parent.name for path in (ROOT / "appliance").glob("*/__init__.py")} - {"app", "cli", "testing"}
    assert {name for name, _ in rows} == packages
    files = [f"appliance/{name}/{file}" for name, column in rows for file in re.findall(r"`([^`]+)`", column)]
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("text", ["see [it](#no-such-heading)", "see [it](page.md#Two)"])
def test_a_link_to_a_missing_heading_is_an_offence(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# One\n\n```\n# Two\n```\n\n{text}\n")
    assert broken_anchors(page) != []


@pytest.mark.parametrize(
    ("name", "page", "section"), [("a.md", "contract", 99), ("a.py", "contract.md", 99), ("a.py", "CONTRACT", 3)]
)
def test_a_wrong_section_is_an_offence(tmp_path: Path, name: str, page: str, section: int) -> None:
    text = f"{page} § {section}"
    (tmp_path / name).write_text(f"see docs/{text}")
    assert wrong_sections(tmp_path / name) == [text]
