"""Functions, files and parameter lists stay short, and folders are named after product words."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import name_of, offences_in, product_files, python_files, tree_of

FUNCTION_LINES = 50
FILE_LINES = 400
PARAMETERS = 5
UNCOUNTED = {"self", "cls", "scope", "visit"}  # the console passes a visit where other layers pass a scope
EXCUSE = "Long because"
# The most modules in one folder; more are hard to survey.
MODULES = {"appliance": 25, "tests": 40}
MIGRATION = re.compile(r"appliance/migrations/m\d{4}_\w+\.py")  # a sequence that only grows, read by number
EMPTY_NAMES = {
    "util",
    "utils",
    "helper",
    "helpers",
    "common",
    "manager",
    "managers",
    "misc",
    "stuff",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_of(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def is_excused(node: Function | ast.Module) -> bool:
    return EXCUSE in (ast.get_docstring(node) or "")


def find_long_functions(tree: ast.AST) -> list[str]:
    lengths = ((node, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions_of(tree))
    return [f"{node.name}: {lines} lines" for node, lines in lengths if lines > FUNCTION_LINES and not is_excused(node)]


def find_long_signatures(tree: ast.AST) -> list[str]:
    offences = []
    for node in functions_of(tree):
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len([name for name in names if name not in UNCOUNTED])
        if count > PARAMETERS and not is_excused(node):
            offences.append(f"{node.name}: {count} parameters")
    return offences


def find_length(path: Path) -> list[str]:
    tree = tree_of(path)
    lines = len(path.read_text("utf-8").splitlines())
    too_long = lines > FILE_LINES and not is_excused(tree)
    return find_long_functions(tree) + ([f"the file: {lines} lines"] if too_long else [])


def test_functions_and_files_are_short() -> None:
    assert offences_in(python_files("appliance", "plugins", "packaging", "tests"), find_length) == {}


def test_no_folder_is_crowded() -> None:
    names = [name for path in python_files(*MODULES) if not MIGRATION.fullmatch(name := name_of(path))]
    counts = Counter(Path(name).parent for name in names)
    crowded = {str(folder): count for folder, count in counts.items() if count > MODULES[folder.parts[0]]}
    assert crowded == {}, "give a crowded folder sub-rooms, named by what a reader looks for"


def test_signatures_are_short() -> None:
    assert offences_in(product_files(), lambda path: find_long_signatures(tree_of(path))) == {}


def test_every_module_says_its_purpose() -> None:
    silent = [name_of(path) for path in product_files() if (tree := tree_of(path)).body and not ast.get_docstring(tree)]
    assert silent == [], "a module starts with a docstring of one sentence: what it is for"


def test_no_folder_or_module_has_a_meaningless_name() -> None:
    names = {part.removesuffix(".py") for path in product_files() for part in Path(name_of(path)).parts}
    assert names.isdisjoint(EMPTY_NAMES)


def test_a_long_function_is_found_unless_excused() -> None:
    body = "\n".join(f"    value_{number} = {number}" for number in range(FUNCTION_LINES))
    assert find_long_functions(ast.parse(f"def grow():\n{body}\n")) == ["grow: 51 lines"]
    assert find_long_functions(ast.parse(f'def grow():\n    """Long because one table belongs together."""\n{body}\n')) == []
    assert find_long_signatures(ast.parse("def f(scope, a, b, c, d, e, *, g): ...")) == ["f: 6 parameters"]
    assert find_long_signatures(ast.parse("def f(self, scope, a, b, c, d, *, e): ...")) == []
