"""A comparison starts each commit with runtimes that its own code has prepared or accepts."""

import subprocess
from pathlib import Path

import pytest

from tests.bench.comparison import find_runtimes

LOADS = "def load(folder):\n    assert (folder / 'made').read_text() == {text!r}\n"
PREPARES = """
import sys
from pathlib import Path
folder = Path(sys.argv[2])
folder.mkdir(exist_ok=True)
with (folder / "made").open("a") as file:
    file.write({text!r})
"""


def git(tree: Path, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *author, *arguments], cwd=tree, check=True, capture_output=True)


def commit(tree: Path, text: str) -> None:
    """A commit whose code prepares runtimes that consist of this text, and loads only such."""
    package = tree / "appliance" / "sandbox" / "runtimes"
    package.mkdir(parents=True, exist_ok=True)
    for folder in (package.parent.parent, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "__init__.py").write_text(LOADS.format(text=text))
    (package / "prepare.py").write_text(PREPARES.format(text=text))
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "-m", "a")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    git(tree, "init", "--quiet")
    return tree


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """That of this checkout, with runtimes of its version."""
    (tmp_path / "cache" / "runtimes").mkdir(parents=True)
    (tmp_path / "cache" / "runtimes" / "made").write_text("new")
    return tmp_path / "cache"


def test_runtimes_of_this_checkout_are_used_where_they_fit(tree: Path, cache: Path) -> None:
    commit(tree, "new")
    assert find_runtimes(tree, cache) == cache / "runtimes"
    assert [each.name for each in cache.iterdir()] == ["runtimes"]


def test_a_commit_with_other_runtimes_gets_its_own_in_a_folder_for_what_they_are_made_from(tree: Path, cache: Path) -> None:
    commit(tree, "old")
    folder = find_runtimes(tree, cache)
    assert (folder / "made").read_text() == "old"
    assert find_runtimes(tree, cache) == folder
    commit(tree, "older")
    assert find_runtimes(tree, cache) not in (folder, cache / "runtimes")
    assert (cache / "runtimes" / "made").read_text() == "new"
