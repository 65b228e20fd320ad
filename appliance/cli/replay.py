"""`gos replay`: replay an execution against its journal."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from appliance.core.errors import NotFound

from .api_client import add_connection, connected

MARKS = {"identical": "=", "output_differs": "~", "diverged": "!", "not_recorded": "+", "skipped": "-"}
SIGNS = {"add": "+", "remove": "-", "replace": "~"}
SHOWN_STEPS = 50
LINE_CHARACTERS = 160


def add_commands(commands: Any) -> None:
    replay = commands.add_parser("replay", help="replay an execution against its journal, with the same or other code")
    replay.add_argument("execution")
    replay.add_argument("--version", type=_version, metavar="N|draft", help="the version to replay with (default: its own)")
    replay.add_argument("--step", metavar="PATH", help="only this step, with its recorded input")
    replay.add_argument("--json", action="store_true", help="print JSON")
    add_connection(replay)
    replay.set_defaults(run=run_replay)


def _version(text: str) -> int | str:
    if text == "draft" or (text.isascii() and text.isdigit() and int(text) > 0):
        return text if text == "draft" else int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither a version number nor `draft`")


def run_replay(args: argparse.Namespace) -> int:
    """Print the differences of a replay; the exit code is 1 if there are any."""
    body = {name: value for name, value in (("version", args.version), ("step", args.step)) if value is not None}
    with connected(args) as caller:
        executions = caller.data("GET", "/executions", params={"execution_id": args.execution})
        if not executions:
            raise NotFound(f"there is no execution {args.execution!r}; `gos execute` and the console show the ids of executions")
        path = f"/processes/{executions[0]['process_id']}/executions/{args.execution}/replay"
        replay = caller.data("POST", path, json=body)
    print(json.dumps(replay, ensure_ascii=False, indent=2) if args.json else "\n".join(_lines(replay)))
    return 0 if replay["identical"] else 1


def _lines(replay: dict[str, Any]) -> Iterator[str]:
    """Yield the differences step by step, and a summary as the last line."""
    differing = [step for step in replay["steps"] if step["result"] != "identical"]
    for step in differing[:SHOWN_STEPS]:
        place = f"{step['path']} [{step['iteration']}]" if "iteration" in step else step["path"]
        yield f"{MARKS[step['result']]} {place}  {step['result'].replace('_', ' ')}"
        yield from (f"    {line}" for line in _details(step))
    if len(differing) > SHOWN_STEPS:
        yield f"… and {len(differing) - SHOWN_STEPS} more; --json prints all"
    if "output" in replay and replay["output"]["diff"]:
        yield "~ output"
        yield from (f"    {line}" for line in _changes(replay["output"]["diff"]))
    yield _summary(replay, len(differing))


def _summary(replay: dict[str, Any], count: int) -> str:
    ran, code = f"{replay['execution_id']} ran version {replay['version']}", replay["replayed_version"]
    code = "the draft" if code == "draft" else f"version {code}"
    steps = len(replay["steps"])
    if replay["identical"]:
        return f"{ran}; replayed with {code}: {steps} step runs, identical"
    return f"{ran}; replayed with {code}: {count} of {steps} step runs differ"


def _details(step: dict[str, Any]) -> Iterator[str]:
    divergence = step.get("divergence")
    if divergence is not None and not step["diff"]:
        if "call" in divergence:
            yield f"at call {divergence['call']}"
        yield f"recorded  {_text(divergence['recorded'])}"
        yield f"replayed  {_text(divergence['replayed'])}"
    yield from _changes(step["diff"])
    if "error" in step:
        yield f"fails now: {step['error']['message']}"


def _changes(diff: list[dict[str, Any]]) -> Iterator[str]:
    for change in diff:
        sides = [_text(change[name]) for name in ("from", "to") if name in change]
        yield f"{SIGNS[change['op']]} {change['path'] or '/'}  {' -> '.join(sides)}"


def _text(value: Any) -> str:
    """A value on one line, shortened if it is long."""
    if isinstance(value, dict) and set(value) == {"method", "args"}:
        text = f"{value['method']}({json.dumps(value['args'], ensure_ascii=False)[1:-1]})"
    else:
        text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LINE_CHARACTERS else f"{text[: LINE_CHARACTERS - 1]}…"
