"""What no file may contain: dynamic code, hidden inputs (environment, wall clock), addresses of a machine."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import (
    ROOT,
    dotted_name,
    imported_modules,
    name_of,
    offences_in,
    product_files,
    project_files,
    python_files,
    tree_of,
)

DYNAMIC_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "yaml.load",
    "yaml.load_all",
    "yaml.unsafe_load",
    "yaml.full_load",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "asyncio.create_subprocess_shell",
}
DYNAMIC_IMPORTS = {"pickle", "cPickle", "dill", "shelve", "marshal", "cloudpickle", "jsonpickle"}
ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.putenv", "os.unsetenv"}
WALL_CLOCK = {
    "time.time",
    "time.time_ns",
    "time.sleep",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "time.localtime",
    "time.gmtime",
}
ENVIRONMENT_READERS = ("appliance/core/config",)
CLOCK_READERS = ("appliance/core/clock", "appliance/core/ids")  # ids sort by the microsecond of their creation

# In pieces, so that this file does not contain the names itself.
REGISTRIES = [
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("npmjs", "com"),
    ("npmjs", "org"),
    ("deb.debian", "org"),
    ("yarnpkg", "com"),
]
FOLDERS_OF_A_MACHINE = ["work", "root", "farm", "home/[a-z]+"]
ADDRESS = re.compile(
    "|".join(
        [
            *(rf"\b{re.escape('.'.join(parts))}\b" for parts in REGISTRIES),
            *(rf"(?<![\w.}})])/{name}/" for name in FOLDERS_OF_A_MACHINE),
        ]
    )
)

ROOT_ENTRIES = {
    *("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Containerfile", "config.example.yaml"),
    *("appliance", "plugins", "ui", "packaging", "tests", "docs"),
}


def short_name(name: str) -> str:
    """The last two parts: `datetime.datetime.now` and `datetime.now` are the same."""
    return ".".join(name.split(".")[-2:])


def find_dynamic_code(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (dotted_name(node.func) in DYNAMIC_CALLS):
            yield f"line {node.lineno} calls {dotted_name(node.func)}"
        if isinstance(node, ast.keyword) and node.arg == "shell" and not _is_false(node.value):
            yield f"line {node.value.lineno} starts a shell"
        if isinstance(node, ast.Call) and dotted_name(node.func).endswith(".xpath") and not _is_text(node.args[0]):
            yield f"line {node.lineno} computes an XPath expression"
    for line, name in imported_modules(tree):
        if name.split(".")[0] in DYNAMIC_IMPORTS:
            yield f"line {line} imports {name}"


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def find_reads(tree: ast.AST, sources: set[str]) -> Iterator[str]:
    """Uses of these functions or variables, by attribute or by a name imported from their module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and short_name(dotted_name(node)) in sources:
            yield f"line {node.lineno} reads {dotted_name(node)}"
    for line, name in imported_modules(tree):
        if name in sources and not name.startswith(("datetime.", "date.")):
            yield f"line {line} imports {name}"


def excluding(paths: list[Path], readers: tuple[str, ...]) -> list[Path]:
    return [path for path in paths if not name_of(path).startswith(readers)]


def test_no_product_file_uses_dynamic_code() -> None:
    assert offences_in(python_files("appliance", "plugins", "packaging"), lambda path: find_dynamic_code(tree_of(path))) == {}


def test_only_the_configuration_reads_the_environment() -> None:
    assert offences_in(excluding(product_files(), ENVIRONMENT_READERS), lambda path: find_reads(tree_of(path), ENVIRONMENT)) == {}


def test_only_the_clock_reads_the_time() -> None:
    paths = excluding(python_files("appliance"), CLOCK_READERS)
    assert offences_in(paths, lambda path: find_reads(tree_of(path), WALL_CLOCK)) == {}


def find_addresses(text: str) -> list[str]:
    if not ADDRESS.search(text):  # most files: line by line takes ten times as long
        return []
    return [f"line {number}: {line.strip()[:100]}" for number, line in enumerate(text.splitlines(), 1) if ADDRESS.search(line)]


def test_no_file_names_a_registry_or_a_machine() -> None:
    offences = []
    for path in project_files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        offences += [f"{name_of(path)} {offence}" for offence in find_addresses(text)]
    assert offences == []


def test_the_root_contains_only_the_agreed_entries() -> None:
    entries = {path.relative_to(ROOT).parts[0] for path in project_files()}
    assert {entry for entry in entries if not entry.startswith(".")} <= ROOT_ENTRIES


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')", "import pickle", "from marshal import loads", "yaml.load(text, Loader=Safe)", "exec(code)",
        "subprocess.run(line, shell=True)", "asyncio.create_subprocess_shell(line)", "tree.xpath(f'//{name}')",
    ],
)  # fmt: skip
def test_dynamic_code_is_found(source: str) -> None:
    assert list(find_dynamic_code(ast.parse(source)))


HARMLESS = [
    "yaml.safe_load(text)", "re.compile('a')", "db.exec", "connection.eval(script)", "run(line, shell=False)", "tree.xpath('a/b')",
]  # fmt: skip


@pytest.mark.parametrize("source", HARMLESS)
def test_similar_harmless_code_passes(source: str) -> None:
    assert list(find_dynamic_code(ast.parse(source))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "from time import time",
        "datetime.datetime.now(UTC)",
        "datetime.now()",
        "datetime.date.today()",
    ],
)
def test_a_read_of_the_wall_clock_is_found(source: str) -> None:
    assert list(find_reads(ast.parse(source), WALL_CLOCK))


def test_a_read_of_the_environment_is_found() -> None:
    assert list(find_reads(ast.parse("os.environ['HOME']"), ENVIRONMENT)) == ["line 1 reads os.environ"]
    assert list(find_reads(ast.parse("from os import environ, getenv"), ENVIRONMENT)) != []
    assert list(find_reads(ast.parse("clock.now_ms(); time.monotonic()"), ENVIRONMENT | WALL_CLOCK)) == []


def test_a_registry_address_is_found() -> None:
    assert find_addresses("index = https://" + "py" + "pi.org/simple") != []
    assert find_addresses(f"cd /{FOLDERS_OF_A_MACHINE[0]}/main") != []
    assert find_addresses("PyPI and npm as words, {base_url}/work/items, ./root/file") == []
