"""Fetches the locked npm packages that the runtimes are made of; uses the standard library alone, so that any Python runs it.

`python packages.py OUT` fetches them while the environment is still being installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[3] / "packaging" / "runtimes"
WHEEL = Path(__file__).resolve().parents[2] / "locks" / "runtimes"
LOCK = WHEEL if WHEEL.is_dir() else CHECKOUT


class FetchFailed(Exception):
    """The message says what to do next."""


def locked_packages() -> dict[str, dict[str, Any]]:
    """The entries of the lock by their places (`node_modules/typescript`), with that of the project itself at ""."""
    entries: dict[str, dict[str, Any]] = json.loads((LOCK / "package-lock.json").read_text("utf-8"))["packages"]
    return entries


def is_fetched(out: Path) -> bool:
    """Whether the packages of this lock are there."""
    stamp = out / "npm" / "fetched"
    return stamp.is_file() and stamp.read_text() == _digest() and (out / "npm" / "node_modules").is_dir()


def _digest() -> str:
    return hashlib.sha256((LOCK / "package-lock.json").read_bytes()).hexdigest()


def fetch(out: Path, npm: str | None = None) -> Path:
    """`npm ci` of the lock into `out`, unless the same one was fetched before; answers node_modules."""
    work = out / "npm"
    work.mkdir(parents=True, exist_ok=True)
    with (out / "fetch.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not is_fetched(out):
            _install(work, npm)
    return work / "node_modules"


def _install(work: Path, npm: str | None) -> None:
    npm = npm or shutil.which("npm")
    if npm is None:
        raise FetchFailed("npm is needed once to fetch the runtimes' packages; install Node.js or name it with --npm")
    shutil.rmtree(work)
    work.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(LOCK / name, work / name)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run([npm, "ci", *options], cwd=work, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise FetchFailed(f"npm could not fetch the packages: {done.stderr.strip()[-600:]}")
    (work / "fetched").write_text(_digest())


if __name__ == "__main__":
    try:
        fetch(Path(sys.argv[1]))
    except (FetchFailed, OSError) as failure:
        sys.exit(str(failure))
