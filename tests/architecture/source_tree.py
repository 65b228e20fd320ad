"""The project's files for the architecture tests, each parsed once."""

import ast
import functools
import gc
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IGNORED = {".venv", ".cache", ".git", "data", "node_modules", "__pycache__", "build", "dist"}


@functools.cache
def project_files() -> tuple[Path, ...]:
    """Files under version control or not ignored; in an unpacked archive, every file outside generated folders."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        files = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    else:
        files = [path for path in ROOT.rglob("*") if IGNORED.isdisjoint(path.relative_to(ROOT).parts)]
    return tuple(sorted(path for path in files if path.is_file()))


def python_files(*folders: str) -> list[Path]:
    """The Python files under these folders of the project."""
    roots = [ROOT / folder for folder in folders]
    return [path for path in project_files() if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in roots)]


def product_files() -> list[Path]:
    """The code that ships: the appliance, the plugins without their tests."""
    return [path for path in python_files("appliance", "plugins") if "tests" not in path.relative_to(ROOT).parts]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree, parsed once; trees are never freed, so the garbage collector is off while parsing."""
    gc.disable()
    try:
        return ast.parse(path.read_text("utf-8"), filename=str(path))
    finally:
        gc.enable()


def offences_in(paths: Iterable[Path], find: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """The offences in these files, by file name: one test for all files is faster than one for each."""
    return {name_of(path): offences for path in paths if (offences := list(find(path)))}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported; `from a import b` gives `a.b`, `from .a import b` gives `.a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{'.' * node.level}{node.module}.{alias.name}") for alias in node.names)


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` for a chain of attributes on a name, otherwise an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""
