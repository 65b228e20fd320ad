"""Huey and Hypercorn are used through one adapter each, which was written for certain versions of them."""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from tests.architecture.source_tree import ROOT, imported_modules, name_of, offences_in, product_files, python_files, tree_of

WRITTEN_FOR = {
    "appliance/core/huey_adapter.py": {"huey": "3.5.4"},
    "appliance/sites/front/hypercorn_adapter.py": {"hypercorn": "0.18.0", "h11": "0.16.0", "h2": "4.4.1"},
}
PUBLIC = {"hypercorn.config.Config", "hypercorn.typing.ASGIReceiveCallable"}
"""What other modules may import of these libraries."""


def find_imports(tree: ast.AST) -> Iterator[str]:
    libraries = {library for versions in WRITTEN_FOR.values() for library in versions}
    for line, name in imported_modules(tree):
        if name.split(".")[0] in libraries and name not in PUBLIC:
            yield f"line {line} imports {name}"


def test_only_the_adapters_import_server_and_queue() -> None:
    paths = [path for path in product_files() if name_of(path) not in WRITTEN_FOR]
    assert offences_in(paths, lambda path: find_imports(tree_of(path))) == {}


@pytest.mark.parametrize("adapter", WRITTEN_FOR)
def test_an_upgrade_looks_at_the_adapter(adapter: str) -> None:
    installed = {library: version(library) for library in WRITTEN_FOR[adapter]}
    assert installed == WRITTEN_FOR[adapter], (
        f"{adapter} was written for {WRITTEN_FOR[adapter]}: read what these libraries changed, remove what they answer by now, "
        "run the tests that the adapter names, and then change the versions here"
    )


@pytest.mark.parametrize("adapter", WRITTEN_FOR)
def test_the_tests_that_an_adapter_names_exist(adapter: str) -> None:
    names = set(re.findall(r"`(test_\w+)`", ast.get_docstring(tree_of(ROOT / adapter)) or ""))
    tests = {
        node.name
        for path in python_files("tests/cluster", "tests/core", "tests/redteam", "tests/sites")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
    }
    assert names
    assert names <= tests


@pytest.mark.parametrize("source", ["import huey", "from hypercorn.asyncio import serve", "from h2 import events", "import h11"])
def test_an_import_of_a_private_part_is_found(source: str) -> None:
    assert list(find_imports(ast.parse(source)))
