"""`gos apply`: apply a solution folder to a tenant, once or whenever a file changes."""

import argparse
import json
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from appliance.core import clock
from appliance.core.errors import ApplianceError, ConnectorFailed, InvalidRequest
from appliance.solutions import is_ignored, read_folder, read_solution, write_zip

from .api_client import Caller, add_connection, connected
from .output import print_error

ZIP = {"Content-Type": "application/zip"}
MARKS = {"create": "+", "update": "~", "unchanged": "=", "missing": "!", "delete": "-", "leftover": "?"}
CHANGING = ("create", "update", "delete")
POLL_SECONDS = 0.3
# Editors save a file in several steps, and people save several files: apply only after this long without a change.
QUIET_SECONDS = 0.3
RETRY_SECONDS = 2.0

State = Mapping[str, tuple[int, int, int]]


def add_commands(commands: Any) -> None:
    apply = commands.add_parser("apply", help="apply a solution folder to a tenant, all or nothing")
    apply.add_argument("dir", type=Path)
    apply.add_argument("--plan", action="store_true", help="only show what would change")
    apply.add_argument("--watch", action="store_true", help="apply again whenever a file changes, until Ctrl-C")
    apply.add_argument("--prune", action="store_true", help="delete what this solution once created and no longer contains")
    apply.add_argument(
        "--allow-loss", action="store_true", help="allow changes that lose values, and deleting collections that have entities"
    )
    apply.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    apply.add_argument("--message", default="", help="the message of the published versions")
    apply.add_argument("--json", action="store_true", help="print JSON, without asking for confirmation")
    add_connection(apply, "--to")
    apply.set_defaults(run=run_apply)


def run_apply(args: argparse.Namespace) -> int:
    with connected(args) as caller:
        if args.watch:
            return _Watch(args, caller).run()
        return _apply_once(args, caller)


def _apply_once(args: argparse.Namespace, caller: Caller) -> int:
    archive = _pack(args.dir)
    should_ask = not (args.yes or args.json) and sys.stdin.isatty() and sys.stdout.isatty()
    if args.plan or should_ask or (args.prune and not args.yes):
        plan = _send(args, caller, "plan", archive)
        if args.plan or plan["blocked"]:
            _print_plan(args, plan)
            return 1 if plan["blocked"] else 0
        if should_ask and _changing(plan):
            _print_plan(args, plan)
            if not _confirm():
                print("nothing was changed", file=sys.stderr)
                return 1
        elif not should_ask:
            _refuse_deleting(plan)
    done = _send(args, caller, "apply", archive)
    _print_plan(args, done)
    return 1 if any(change.get("failed") for change in done["changes"]) else 0


def _pack(folder: Path) -> bytes:
    """Pack the folder as an archive; errors in it are raised here, with file and line."""
    files = read_folder(folder)
    read_solution(files)
    return write_zip(files)


def _send(args: argparse.Namespace, caller: Caller, verb: str, archive: bytes) -> dict[str, Any]:
    params = {"allow_loss": str(args.allow_loss).lower(), "prune": str(args.prune).lower()}
    params |= {"message": args.message} if verb == "apply" else {}
    answer: dict[str, Any] = caller.data("POST", f"/solutions/{verb}", content=archive, headers=ZIP, params=params)
    return answer


def _changing(plan: Mapping[str, Any], actions: Iterable[str] = CHANGING) -> list[str]:
    return [f"{change['kind']} {change['id']}" for change in plan["changes"] if change["action"] in actions]


def _refuse_deleting(plan: Mapping[str, Any]) -> None:
    """Raise InvalidRequest if the plan deletes anything; without a terminal to ask on, deleting needs --yes."""
    deleted = _changing(plan, ("delete",))
    if deleted:
        raise InvalidRequest(f"this would delete {', '.join(deleted)}; check with --plan, then confirm with --yes")


def _confirm() -> bool:
    sys.stdout.write("apply this? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print_plan(args: argparse.Namespace, plan: Mapping[str, Any]) -> None:
    if args.json:
        print(json.dumps(plan, ensure_ascii=False, indent=None if args.watch else 2), flush=True)
    else:
        print(describe(plan, changes_only=args.watch), flush=True)


def describe(plan: Mapping[str, Any], *, changes_only: bool = False) -> str:
    """Describe a plan for people: a line per item, another for what blocks it or failed, and a count."""
    lines = []
    for change in plan["changes"]:
        if changes_only and change["action"] == "unchanged":
            continue
        lines.append(f"{MARKS[change['action']]} {change['kind']} {change['id']}  {change['summary']}".rstrip())
        if change.get("blocked"):
            lines.append(f"    blocked: {change['blocked']}")
        if change.get("failed"):
            lines.append(f"    failed: {change['failed']}")
    count = len(_changing(plan))
    done = "changed" if plan["applied"] else "to change"
    left = len(_changing(plan, ("leftover",)))
    hint = f"; {left} left over, see --prune" if left else ""
    return "\n".join([*lines, f"{plan['solution']}: {f'{count} {done}' if count else 'nothing to change'}{hint}"])


class _Watch:
    """Applies the folder after each change, once its files are stable; an error is printed and the watch continues."""

    def __init__(self, args: argparse.Namespace, caller: Caller) -> None:
        self._args, self._caller = args, caller
        self._pause = threading.Event()  # Never set: used to wait, and Ctrl-C ends the wait.
        self._last_problem = ""

    def run(self) -> int:
        """Watch until Ctrl-C."""
        try:
            applied: State | None = None
            while True:
                state = self._stable_state()
                if state != applied and self._apply():
                    applied = state
                self._pause.wait(POLL_SECONDS)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 0

    def _stable_state(self) -> State:
        state = scan_folder(self._args.dir)
        while self._pause.wait(QUIET_SECONDS) or (later := scan_folder(self._args.dir)) != state:
            state = later
        return state

    def _apply(self) -> bool:
        """Apply this state of the folder; False if the appliance did not answer and the state must be tried again."""
        try:
            archive = _pack(self._args.dir)
            if not self._args.json:
                print(f"-- {clock.rfc3339(clock.now_ms())[11:19]} {self._args.dir}", flush=True)
            plan = _send(self._args, self._caller, "plan", archive)
            if not plan["blocked"]:
                if self._args.prune and not self._args.yes:
                    _refuse_deleting(plan)
                plan = _send(self._args, self._caller, "apply", archive)
            _print_plan(self._args, plan)
        except ConnectorFailed as error:
            if self._last_problem != error.message:
                print_error(error)
            self._last_problem = error.message
            self._pause.wait(RETRY_SECONDS)
            return False
        except ApplianceError as error:
            print_error(error)
        except OSError as error:  # an editor is replacing a file right now: the next scan sees it
            print(f"gos: {error.filename}: {error.strerror}", file=sys.stderr, flush=True)
        self._last_problem = ""
        return True


def scan_folder(folder: Path) -> State:
    """The modification time, size and inode of each file, which differ after any change in the folder."""
    state = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not is_ignored(name) and path.is_file():
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            state[name] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return state
