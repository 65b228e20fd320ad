"""`gos connector`: a new connector, its contract suite, and what is installed."""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from appliance.connectors.registry import CONNECTORS, load_registry
from appliance.connectors.scaffold import write_scaffold
from appliance.core.errors import NotFound

from .output import add_json, say, show


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("connector", help="begin, test or list connectors")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=type(parser))
    new = verbs.add_parser("new", help="write the package of a new connector that works at once")
    new.add_argument("name", help="lower-case letters, digits and hyphens")
    new.add_argument("--in", dest="parent", type=Path, default=Path(), help="the folder to write it into (default: this one)")
    add_json(new)
    new.set_defaults(run=run_new)
    test = verbs.add_parser("test", help="run the contract suite and the tests of a connector's package")
    test.add_argument("path", type=Path, help="the package's folder")
    test.add_argument("--junit", type=Path, help="write a JUnit report to this file, too")
    test.set_defaults(run=run_test)
    listing = verbs.add_parser("list", help="list what is installed, and why something cannot be used")
    add_json(listing)
    listing.set_defaults(run=run_list)


def run_new(args: argparse.Namespace) -> int:
    made = write_scaffold(args.name, args.parent)
    files = "".join(f"\n  {file}" for file in made.files)
    sentence = f"{made.folder} is there:{files}\nNow test it: gos connector test {made.folder}"
    say(args, sentence, folder=str(made.folder), files=list(made.files))
    return 0


def run_test(args: argparse.Namespace) -> int:
    """The tests of the folder, in a process of their own that finds the package as it lies there."""
    folder: Path = args.path.resolve()
    if not (folder / "pyproject.toml").is_file() or not (folder / "tests").is_dir():
        raise NotFound(f"{args.path} is no connector's package: that has a pyproject.toml and tests/; see `gos connector new`")
    if importlib.util.find_spec("pytest") is None:
        raise NotFound(f"testing needs pytest, which is not installed here; install it: {sys.executable} -m pip install pytest")
    command = [sys.executable, "-m", "pytest", "--rootdir", str(folder), "-o", f"pythonpath={folder / 'src'}", "-W", "error"]
    command += ["-p", "no:cacheprovider", "-p", "no:asyncio", str(folder / "tests")]
    if args.junit:
        command += ["--junit-xml", str(args.junit.resolve())]
    return int(subprocess.run(command, cwd=folder, check=False).returncode != 0)  # noqa: S603 - pytest, on what was named


def run_list(args: argparse.Namespace) -> int:
    registry = load_registry(folder=args.load().data / CONNECTORS)
    rows = [
        {
            "name": found.name, "title": found.connector.title, "version": found.connector.version, "from": found.distribution,
            "actions": len(found.actions), "triggers": len(found.triggers), "problem": None,
        }
        for found in registry.installed.values()
    ]  # fmt: skip
    rows += [
        {
            "name": each.name, "title": None, "version": None, "from": each.distribution,
            "actions": 0, "triggers": 0, "problem": each.message,
        }
        for each in registry.problems
    ]  # fmt: skip
    show(args, sorted(rows, key=lambda row: str(row["name"])))
    return 0
