"""`gos connector`: create, test, declare and list connectors."""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from appliance.connectors import catalogue
from appliance.connectors.declarative import ConnectorPlan, DocumentInvalid, make_connector, read_document
from appliance.connectors.development import declaration_of, write_package_declaration, write_scaffold
from appliance.connectors.registry import CONNECTORS, load_registry
from appliance.core.config import environment
from appliance.core.errors import NotFound, ValidationFailed

from .output import add_json, print_result, print_rows


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("connector", help="create, test or list connectors")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=type(parser))
    new = verbs.add_parser("new", help="create the package of a new, working connector")
    new.add_argument("name", help="lower-case letters, digits and hyphens")
    new.add_argument("--in", dest="parent", type=Path, default=Path(), help="the parent folder (default: this one)")
    add_json(new)
    new.set_defaults(run=run_new)
    test = verbs.add_parser("test", help="run the contract suite and the tests of a connector's package, or of a YAML file")
    test.add_argument("path", type=Path, help="the package's folder, or the YAML file")
    test.add_argument("--junit", type=Path, help="also write a JUnit report to this file")
    test.set_defaults(run=run_test)
    declare = verbs.add_parser("declare", help="record the actions of this release, to check the next release for compatibility")
    declare.add_argument("path", type=Path, help="the package's folder, or the YAML file")
    add_json(declare)
    declare.set_defaults(run=run_declare)
    pages = verbs.add_parser("catalogue", help="print the actions of each connector, as a page of the documentation")
    pages.set_defaults(run=run_catalogue)
    listing = verbs.add_parser("list", help="list installed connectors, and why one cannot be used")
    add_json(listing)
    listing.set_defaults(run=run_list)


def run_new(args: argparse.Namespace) -> int:
    scaffold = write_scaffold(args.name, args.parent)
    files = "".join(f"\n  {file}" for file in scaffold.files)
    sentence = f"created {scaffold.folder}:{files}\nNow test it: gos connector test {scaffold.folder}\n"
    sentence += f"After changing its actions, record them: gos connector declare {scaffold.folder}"
    print_result(args, sentence, folder=str(scaffold.folder), files=list(scaffold.files))
    return 0


def run_test(args: argparse.Namespace) -> int:
    """Run the tests of a package's folder, in a process of their own that imports the package from there."""
    if args.path.suffix == ".yaml":
        return _test_declared(args.path.resolve(), args)
    folder: Path = args.path.resolve()
    if not (folder / "pyproject.toml").is_file() or not (folder / "tests").is_dir():
        raise NotFound(
            f"{args.path} is not a connector's package, which has a pyproject.toml and tests/; create one with `gos connector new`"
        )
    return _run_tests(folder, folder / "tests", args.junit, "-o", f"pythonpath={folder / 'src'}")


def _run_tests(root: Path, tests: Path, junit: Path | None, *more: str) -> int:
    if importlib.util.find_spec("pytest") is None:
        raise NotFound(f"testing needs pytest, which is not installed; run {sys.executable} -m pip install pytest")
    command = [sys.executable, "-m", "pytest", "--rootdir", str(root), *more, "-W", "error"]
    command += ["-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:schemathesis", str(tests)]
    if junit:
        command += ["--junit-xml", str(junit.resolve())]
    return int(subprocess.run(command, cwd=root, check=False).returncode != 0)  # noqa: S603 - pytest, on the given path


_DECLARED_TESTS = """
from pathlib import Path

from appliance.connectors.declarative import make_connector, read_document
from appliance.connectors.suites import Compatible, Faulty, Recorded
from appliance.connectors.testing import ConnectorContract

FILE = Path({file!r})


class TestContract({parts}ConnectorContract):
    connector = make_connector(read_document(FILE.read_text("utf-8")))
    recording = FILE.with_suffix(".recording.json")
    declaration = FILE.with_suffix(".declaration.json")
"""


def _test_declared(file: Path, args: argparse.Namespace) -> int:
    """Run the contract suite with the HTTP exchanges recorded beside the file."""
    plan = _read_declared(file)
    variable = f"CONNECTOR_SETTINGS_{plan.name.upper().replace('-', '_')}"
    if not file.with_suffix(".recording.json").is_file() and environment(variable) is None:
        raise NotFound(
            f"{file.with_suffix('.recording.json').name} does not exist; record it once with a test account, whose settings are"
            f" JSON in the environment: {variable}='{{…}}' gos connector test {args.path}"
        )
    parts = "Recorded, Faulty, " + ("Compatible, " if file.with_suffix(".declaration.json").is_file() else "")
    with tempfile.TemporaryDirectory() as folder:
        tests = Path(folder) / f"test_{plan.name.replace('-', '_')}.py"
        tests.write_text(_DECLARED_TESTS.format(file=str(file), parts=parts), "utf-8")
        return _run_tests(Path(folder), tests, args.junit)


def _read_declared(file: Path) -> ConnectorPlan:
    if not file.is_file():
        raise NotFound(f"{file} does not exist; give a connector's YAML file, or the folder of its package")
    try:
        return read_document(file.read_text("utf-8"))
    except DocumentInvalid as error:
        raise ValidationFailed("; ".join(f"{file.name}, {problem}" for problem in error.problems)) from error


def run_declare(args: argparse.Namespace) -> int:
    """Record the actions of this release; the contract suite checks that the next release is compatible."""
    path: Path = args.path.resolve()
    if path.suffix == ".yaml":
        declaration, file = declaration_of(make_connector(_read_declared(path))), path.with_suffix(".declaration.json")
        file.write_text(json.dumps(declaration, indent=1, ensure_ascii=False) + "\n", "utf-8")
    else:
        file = path / "declaration.json"
        write_package_declaration(path)
    print_result(args, f"wrote {file}; the next release is checked against it", file=str(file))
    return 0


def run_catalogue(_args: argparse.Namespace) -> int:
    """Print the documentation of the installed plugins, without an operator's own YAML files."""
    print(catalogue.markdown(catalogue.entries(load_registry())), end="")
    return 0


def run_list(args: argparse.Namespace) -> int:
    registry = load_registry(folder=args.load().data / CONNECTORS)
    rows = [
        {
            "name": installed.name, "title": installed.connector.title, "version": installed.connector.version,
            "from": installed.distribution, "actions": len(installed.actions), "triggers": len(installed.triggers), "problem": None,
        }
        for installed in registry.installed.values()
    ]  # fmt: skip
    rows += [
        {
            "name": each.name, "title": None, "version": None, "from": each.distribution,
            "actions": 0, "triggers": 0, "problem": each.message,
        }
        for each in registry.problems
    ]  # fmt: skip
    print_rows(args, sorted(rows, key=lambda row: str(row["name"])))
    return 0
