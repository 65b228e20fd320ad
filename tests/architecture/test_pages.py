"""The commands in README and docs work: they are run from top to bottom, against a real appliance."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.page_commands import Reader, blocks_of
from tests.architecture.source_tree import ROOT, name_of, project_files

PLACES = {"README.md", "CONTRIBUTING.md", "docs"}
PAGES = [path for path in project_files() if path.suffix == ".md" and path.relative_to(ROOT).parts[0] in PLACES]
CODE = re.compile(r"`[^`\n]*`")  # a pattern in it may look like a link
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s#]+)[^)]*\)")


@pytest.fixture(scope="module")
def shared_readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Reader]]:
    """The readers that started an appliance for several pages, by the text of the start block."""
    starts = [block for page in PAGES for block in blocks_of(page.read_text("utf-8")) if block.starts]
    pages = Counter(block.text for block in starts)
    readers: dict[str, Reader] = {}
    try:
        for block in starts:
            if pages[block.text] > 1 and block.text not in readers:
                readers[block.text] = Reader(tmp_path_factory.mktemp("shared"))
                readers[block.text].follow(block)
        yield readers
    finally:
        for reader in readers.values():
            reader.stop()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path, shared_readers: dict[str, Reader]) -> None:
    blocks = [block for block in blocks_of(page.read_text("utf-8")) if not block.unverified]
    reader = Reader(tmp_path, running=shared_readers)
    try:
        for block in blocks:
            reader.follow(block)
    finally:
        reader.stop()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_cannot_run_here_are_at_least_well_formed(page: Path) -> None:
    for block in blocks_of(page.read_text("utf-8")):
        result = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"line {block.line}: {result.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    text = CODE.sub("", page.read_text("utf-8"))
    targets = [link["target"] for link in LINK.finditer(text)]
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_a_failing_command_fails_the_page(tmp_path: Path) -> None:
    (block,) = blocks_of("# Page\n\n```sh\ntrue\nfalse\ntrue\n```\n")
    with pytest.raises(AssertionError, match="line 3"):
        Reader(tmp_path).follow(block)


def test_a_block_gets_its_own_data_folder_and_port(tmp_path: Path) -> None:
    (block,) = blocks_of('```sh\ntest "$GOS_DATA" != data\ntest "$GOS_PORT" = 8080\n```\n')
    Reader(tmp_path).follow(block)


def test_a_shared_start_that_has_ended_fails_the_next_page(tmp_path: Path) -> None:
    (block,) = blocks_of("```sh start\nsleep 60\n```\n")
    first = Reader(tmp_path)
    (tmp_path / "start.log").write_text("killed")
    with pytest.raises(AssertionError, match="runs no more: killed"):
        Reader(tmp_path, running={block.text: first}).follow(block)


@pytest.mark.parametrize("info", ["bash", "console", "sh later", "sh unverified:"])
def test_a_block_that_would_escape_the_tests_is_refused(info: str) -> None:
    with pytest.raises(AssertionError):
        blocks_of(f"```{info}\ntrue\n```\n")
