"""`gos pull`, `gos check`, `gos execute` and `gos logs`."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.connectors.registry import CONNECTORS, load_registry
from appliance.core.errors import InvalidJson, NotFound
from appliance.sandbox import Pool, Settings
from appliance.solutions import (
    ROOT_FILE,
    ArchiveLimits,
    inspect_solution,
    merge_pulled,
    raise_problems,
    read_archive,
    read_folder,
    read_solution,
    service,
    type_files,
    write_folder,
)

from .api_client import add_connection, connected
from .event_stream import follow
from .output import add_json, print_result

LONGEST_WAIT = 60


def add_commands(commands: Any) -> None:
    _add_solution_commands(commands)
    execute = commands.add_parser("execute", help="execute a process and print its output")
    execute.add_argument("process")
    execute.add_argument("--input", default="{}", help="a JSON object, @FILE, or - for standard input")
    execute.add_argument("--wait", type=int, default=30, choices=range(LONGEST_WAIT + 1), metavar="SECONDS", help="0 to 60")
    execute.add_argument("--label")
    execute.add_argument("--json", action="store_true", help="print the whole execution")
    add_connection(execute)
    execute.set_defaults(run=run_execute)
    logs = commands.add_parser("logs", help="print log lines, the newest last")
    logs.add_argument("--follow", action="store_true", help="keep printing new lines, also after a lost connection")
    logs.add_argument("--execution")
    logs.add_argument("--level", choices=("debug", "info", "warn", "error"))
    logs.add_argument("--limit", type=int, default=50)
    logs.add_argument("--json", action="store_true", help="one JSON object per line")
    add_connection(logs)
    logs.set_defaults(run=run_logs)


def _add_solution_commands(commands: Any) -> None:
    pull = commands.add_parser("pull", help="export a tenant as a solution folder")
    pull.add_argument("dir", type=Path)
    pull.add_argument("--drafts", action="store_true", help="export the drafts of processes instead of published versions")
    add_json(pull)
    add_connection(pull)
    pull.set_defaults(run=run_pull)
    check = commands.add_parser("check", help="check a solution folder without an appliance")
    check.add_argument("dir", type=Path)
    check.add_argument("--write-types", action="store_true", help="also write types and schemas for editors")
    add_json(check)
    check.set_defaults(run=run_check)


def run_pull(args: argparse.Namespace) -> int:
    with connected(args) as caller:
        response = caller.call("GET", "/solutions/export", params={"drafts": str(args.drafts).lower()})
    if left_out := response.headers.get("GOS-Left-Out"):
        print(f"left out: {left_out}: too large for a solution; transfer it separately, a WebApp with gos deploy", file=sys.stderr)
    changed = write_folder(args.dir, _merged(args.dir, read_archive(response.content, ArchiveLimits(10_000))))
    if args.json:
        print(json.dumps({"changed": list(changed)}, ensure_ascii=False, indent=2))
        return 0
    for name in changed:
        print(name)
    print(f"{len(changed)} files written to {args.dir}", file=sys.stderr)
    return 0


def _merged(folder: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    """The pulled files that must be written: all of them if there is no folder yet."""
    if not (folder / ROOT_FILE).is_file():
        return files
    return merge_pulled(read_solution(read_folder(folder)), read_solution(files), files)


def run_check(args: argparse.Namespace) -> int:
    solution, unread = inspect_solution(read_folder(args.dir))
    registry = load_registry(folder=args.load().data / CONNECTORS)
    if args.write_types:
        raise_problems(unread)
        for path, text in type_files(registry, solution):
            (args.dir / path).parent.mkdir(exist_ok=True)
            (args.dir / path).write_text(text, "utf8")
    with _sandbox(args) as pool:
        checked = service.check_solution(service.Checks(registry, pool), solution)
    problems = list(dict.fromkeys([*unread, *checked]))  # both report unreadable parts of a process
    for problem in problems:
        if problem.severity == "warning":
            print(f"warning: {problem.describe()}", file=sys.stderr)
    raise_problems(problems)
    counts = {name: len(getattr(solution, name)) for name in ("processes", "collections", "integrations", "webapps")}
    counts |= {name: count for name in ("agents", "policies", "skills") if (count := len(getattr(solution, name)))}
    counted = ", ".join(f"{count} {name}" for name, count in counts.items())
    print_result(args, f"{solution.name}: {counted}, no errors", solution=solution.name, **counts)
    return 0


@contextmanager
def _sandbox(args: argparse.Namespace) -> Iterator[Pool]:
    from appliance.app.sandboxes import runtimes_folder

    pool = Pool(Settings(1, 2, runtimes_folder(args.load())))
    pool.start()
    try:
        yield pool
    finally:
        pool.stop()


def run_execute(args: argparse.Namespace) -> int:
    params = {"wait": args.wait} | ({"label": args.label} if args.label else {})
    with connected(args) as caller:
        execution = caller.data("POST", f"/processes/{args.process}/execute", json=read_input(args.input), params=params)
    result = execution if args.json or execution["status"] != "succeeded" else execution.get("output")
    print(json.dumps(result, ensure_ascii=False, indent=2))
    if execution["status"] not in ("succeeded", "failed", "timed_out", "cancelled"):
        print(f"{execution['execution_id']} is {execution['status']} and continues; follow it in the console", file=sys.stderr)
    return 0 if execution["status"] in ("succeeded", "queued", "running", "waiting", "scheduled") else 1


def read_input(text: str) -> dict[str, Any]:
    """Parse the object in the argument, in the file after @, or from standard input for `-`."""
    try:
        if text == "-":
            data = json.load(sys.stdin)
        else:
            data = json.loads(Path(text[1:]).read_text("utf8") if text.startswith("@") else text)
    except OSError as error:
        raise NotFound(f"{text[1:]} cannot be read ({error.strerror}); check the path after @") from error
    except ValueError as error:
        raise InvalidJson(f"the input is not JSON: {error}; pass an object, @FILE or -") from error
    if not isinstance(data, dict):
        raise InvalidJson("the input must be a JSON object")
    return data


def run_logs(args: argparse.Namespace) -> int:
    filters = {"execution": args.execution, "level": args.level}
    params = {name: value for name, value in filters.items() if value}
    with connected(args) as caller:
        lines = caller.data("GET", "/logs", params={**params, "limit": args.limit})
        if args.follow:
            # Start at the oldest of these lines, so that none is lost between the two calls.
            since = lines[-1]["at"] if lines else "1970-01-01T00:00:00.000Z"
            lines = follow(caller, "/logs", {**params, "follow": "true", "since": since})
        else:
            lines = reversed(lines)
        for line in lines:
            _print_line(args, line)
    return 0


def _print_line(args: argparse.Namespace, line: dict[str, Any]) -> None:
    if args.json:
        print(json.dumps(line, ensure_ascii=False), flush=True)
        return
    place = " ".join(str(line[name]) for name in ("execution_id", "step") if line.get(name))
    fields = json.dumps(line["fields"], ensure_ascii=False) if line.get("fields") else ""
    print(
        " ".join(part for part in (line["at"], line["level"], line["source"], place, line["message"], fields) if part), flush=True
    )
