"""Fetches packages of Node.js for tests, once for each lock, and finds a Node.js that can run them."""

import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OWN_NODE = ROOT / ".cache" / "node" / "bin"
LEAST = (22, 19)


@dataclass(frozen=True)
class Packages:
    """Where packages are, and a Node.js that is new enough for them."""

    node: str
    modules: Path

    def run(self, program: str, *arguments: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        """Run one of the packages' programs to its end, in the folder of the packages."""
        command = [self.node, str(self.modules / program), *arguments]
        return subprocess.run(command, cwd=self.modules, env=env, capture_output=True, text=True, timeout=300, check=False)


def fetch_packages(lock: Path, name: str) -> Path:
    """The `node_modules` of the lock in the folder `lock`, fetched into `.cache/NAME` when they are not there."""
    digest = hashlib.sha256((lock / "package-lock.json").read_bytes()).hexdigest()[:16]
    cached = ROOT / ".cache" / name / digest
    if not (cached / "complete").is_file():
        shutil.rmtree(cached, ignore_errors=True)
        cached.mkdir(parents=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copyfile(lock / file, cached / file)
        npm = shutil.which("npm") or str(OWN_NODE / "npm")
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=cached, check=True, capture_output=True)
        (cached / "complete").touch()
    return cached / "node_modules"


def find_node() -> str:
    """The machine's Node.js, or the one that packaging/setup.sh has fetched; RuntimeError when neither is new enough."""
    for path in (shutil.which("node"), str(OWN_NODE / "node")):
        if path is None or not Path(path).exists():
            continue
        result = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        version = re.match(r"v(\d+)\.(\d+)", result)
        if version is not None and (int(version[1]), int(version[2])) >= LEAST:
            return path
    raise RuntimeError(f"the tests need Node.js {'.'.join(map(str, LEAST))} or newer; bash packaging/test.sh installs it")
