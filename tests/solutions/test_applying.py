"""`gos apply` for people and CI: confirms at a terminal, deletes nothing without an option, and watches a folder."""

import io
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.solutions.folder import write_folder
from tests.solutions.conftest import Gos, make_solution

APPLY = [sys.executable, "-m", "appliance", "apply"]
MORE = "id: more\nsteps: [{id: one, rule: {expression: '= 1'}}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = make_solution(**{"processes/more/process.yaml": MORE})
    write_folder(tmp_path / "solution", {path: text.encode() for path, text in files.items()})
    return tmp_path / "solution"


def at_a_terminal(folder: Path, answer: str, *more: str) -> tuple[int, str]:
    """The exit code and output for a person who types `answer`."""
    outer, inner = pty.openpty()
    with subprocess.Popen([*APPLY, str(folder), *more], stdin=inner, stdout=inner, stderr=inner) as process:
        os.close(inner)
        os.write(outer, answer.encode())
        seen = b""
        while True:
            try:
                part = os.read(outer, 4096)
            except OSError:  # Linux says so when the other side is closed
                break
            seen += part
        process.wait()
    os.close(outer)
    return process.returncode, seen.decode()


def test_at_a_terminal_the_plan_is_shown_and_confirmed(gos: Gos, folder: Path) -> None:
    code, seen = at_a_terminal(folder, "n\n")
    assert (code, "+ process add" in seen, "apply this? [y/N]" in seen, "nothing was changed" in seen) == (1, True, True, True)
    code, seen = at_a_terminal(folder, "y\n")
    assert (code, "small: 4 to change" in seen, "small: 4 changed" in seen) == (0, True, True)
    code, seen = at_a_terminal(folder, "")
    assert (code, "apply this?" in seen, "small: nothing to change" in seen) == (0, False, True)


def test_the_yes_option_skips_the_confirmation(gos: Gos, folder: Path) -> None:
    code, seen = at_a_terminal(folder, "", "--yes")
    assert (code, "apply this?" in seen, "small: 4 changed" in seen) == (0, False, True)


def test_nothing_is_deleted_without_a_word(gos: Gos, folder: Path) -> None:
    assert gos("apply", folder)[0] == 0
    shutil.rmtree(folder / "processes/more")
    code, out, _ = gos("apply", folder)
    assert (code, out.splitlines()[-2:]) == (0, [
        "? process more  no longer in the folder; a prune deletes it", "small: nothing to change; 1 left over, see --prune",
    ])  # fmt: skip
    code, out, errors = gos("apply", folder, "--prune")
    assert (code, out) == (1, "")
    assert errors == "gos: this would delete process more; check with --plan, then confirm with --yes\n"
    code, out, _ = gos("apply", folder, "--prune", "--plan")
    assert (code, "- process more  no longer in the folder" in out) == (0, True)
    code, out, _ = gos("apply", folder, "--prune", "--yes", "--json")
    assert (code, [c["id"] for c in json.loads(out)["changes"] if c["action"] == "delete"]) == (0, ["more"])
    assert gos("execute", "more")[0] == 1


@contextmanager
def watching(folder: Path, *more: str) -> Iterator["subprocess.Popen[str]"]:
    # Where the tests run in the background SIGINT is ignored, and children would inherit that: they are to see a Ctrl-C.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen([*APPLY, str(folder), "--watch", *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    signal.signal(signal.SIGINT, former)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: "subprocess.Popen[str]", part: str) -> str:
    """The output up to the line that contains `part`."""
    assert isinstance(process.stdout, io.TextIOWrapper)
    output_text = ""
    for line in process.stdout:
        output_text += line
        if part in line:
            return output_text
    raise AssertionError(f"it ended without {part!r}: {output_text}")


def test_a_watched_folder_is_applied_at_every_change_and_survives_errors(gos: Gos, folder: Path) -> None:
    code_file = folder / "processes/add/steps/sum.ts"
    right = code_file.read_text()
    with watching(folder) as process:
        assert "+ process add  published as version 1" in read_until(process, "small: 4 changed")
        code_file.write_text("export default () => {\n  let 1;\n}\n")
        assert "processes/add/steps/sum.ts:2:" in read_until(process, "sum.ts:2")
        code_file.write_text(right.replace("+ 1", "+ 2"))
        output_text = read_until(process, "small: 1 changed")
        assert "~ process add  steps/sum.ts changed" in output_text
        assert "process more" not in output_text, "only what changed is shown"
        (folder / "solution.yaml").rename(folder / "elsewhere.yaml")
        read_until(process, "is not a solution folder")
        (folder / "elsewhere.yaml").rename(folder / "solution.yaml")
        read_until(process, "small: nothing to change")
        process.send_signal(signal.SIGINT)
        assert read_until(process, "stopped") == "stopped\n"
        assert process.wait() == 0
    assert gos("execute", "add", "--input", '{"a": 1}')[1] == "3\n"


def test_a_watch_in_json_is_a_plan_per_line(gos: Gos, folder: Path) -> None:
    with watching(folder, "--json") as process:
        first = json.loads(read_until(process, "small"))
        (folder / "processes/more/process.yaml").write_text(MORE.replace("= 1", "= 2"))
        second = json.loads(read_until(process, "small"))
    assert (len([c for c in first["changes"] if c["action"] == "create"]), first["applied"]) == (4, True)
    assert [c["id"] for c in second["changes"] if c["action"] == "update"] == ["more"]


def test_an_unreachable_appliance_is_reported_once_and_retried(gos: Gos, folder: Path) -> None:
    with watching(folder, "--to", "http://127.0.0.1:9") as process:
        assert "does not answer" in read_until(process, "does not answer")
        process.send_signal(signal.SIGINT)
        assert "does not answer" not in read_until(process, "stopped")
