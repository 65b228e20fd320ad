"""State that a whole process shares is declared where a reader looks for it: pools, caches of the database, listeners."""

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import dotted_name, name_of, offences_in, python_files, tree_of

POOLS = "appliance/core/pools.py"
LISTS = {
    "appliance/api/frame/routing.py": "the routes, which the decorators fill",
    "appliance/console/frame/routing.py": "the pages and actions, which the decorators fill",
    "appliance/core/database/caches.py": "every cache, so that opening a database empties it",
    "appliance/core/json_schema/checking.py": "worker processes, of which the latest is used",
}
"""Modules that may have a list which starts empty, and what for."""


def find_pools(tree: ast.AST) -> Iterator[str]:
    """Calls that make a thread pool."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted_name(node.func).endswith("ThreadPoolExecutor"):
            yield f"line {node.lineno} opens a pool whose size is not in {POOLS}"


def find_lists(tree: ast.Module) -> Iterator[str]:
    """Lists of a module that start empty, such as its listeners: events go through `core/events.py`."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.List) and not node.value.elts:
            yield f"line {node.lineno} has a list for the whole process"


def test_every_pool_is_declared_in_one_place() -> None:
    paths = [path for path in python_files("appliance") if name_of(path) != POOLS]
    assert offences_in(paths, lambda path: find_pools(tree_of(path))) == {}


def test_no_module_has_listeners_of_its_own() -> None:
    paths = [path for path in python_files("appliance") if name_of(path) not in LISTS]
    assert offences_in(paths, lambda path: find_lists(tree_of(path))) == {}


@pytest.mark.parametrize("source", ["_listeners: list[Listener] = []", "_listeners = []"])
def test_a_list_of_a_module_is_found(source: str) -> None:
    assert len(list(find_lists(ast.parse(source)))) == 1


@pytest.mark.parametrize("source", ["futures.ThreadPoolExecutor(4)", "with ThreadPoolExecutor(4) as threads:\n    pass"])
def test_a_pool_is_found(source: str) -> None:
    assert len(list(find_pools(ast.parse(source)))) == 1
