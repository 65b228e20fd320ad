"""`gos migrate-to`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from appliance.backups.moving import Move, MoveResult, move_installation
from appliance.core.config import Config, load_config

from .output import add_json, print_result

_STEP = 20_000  # Rows or contents between two lines about the same table.


def add_commands(commands: Any) -> None:
    move = commands.add_parser(
        "migrate-to", help="move the stopped appliance to another database or store of contents, or go on with that"
    )
    move.add_argument(
        "target", type=Path, metavar="NEW.yaml",
        help="the configuration to move to, with its storage.database and blobs; its data folder is the present one by default",
    )  # fmt: skip
    add_json(move)
    move.set_defaults(run=run_move)


def run_move(args: argparse.Namespace) -> int:
    from appliance.app.parts import make_places

    current: Config = args.load()
    target = load_config(args.target, defaults={"storage.data": str(current.data)})
    done = move_installation(Move(current, target, make_places), _Progress().report)
    print_result(
        args, _describe(done, args.target, target), tables=done.tables, rows=done.rows, files=done.files, contents=done.contents,
        copied_contents=done.copied_contents, damaged=list(done.damaged), resumed=done.is_resumed,
    )  # fmt: skip
    for place in done.damaged:
        print(f"gos: the content {place} was damaged or missing before, and is not at the target", file=sys.stderr)
    return 1 if done.damaged else 0


class _Progress:
    """Prints a line to standard error when a table or the contents are complete, and now and then before."""

    def __init__(self) -> None:
        self._printed: tuple[str, int] = ("", 0)

    def report(self, stage: str, done: int, of: int) -> None:
        before = self._printed[1] if self._printed[0] == stage else 0
        if done >= of or done - before >= _STEP:
            print(f"{stage}: {done} of {of}", file=sys.stderr, flush=True)
            self._printed = (stage, done)


def _describe(done: MoveResult, path: Path, target: Config) -> str:
    """What is at the target, and what to do next."""
    counted = f"{done.rows} rows in {done.tables} tables and {done.contents} contents"
    if not done.tables:
        counted = f"{done.contents} contents"
    return (
        f"{counted} are at the target and equal those of the source, which was not changed. To use them, copy {path} to "
        f"{target.data / 'config.yaml'}, or name it with --config, on every machine, and start the appliance; do not start it with "
        "the former configuration again, or the two go separate ways"
    )
