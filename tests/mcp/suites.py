"""`python -m tests.mcp.suites`: fetches MCP's conformance suite and inspector once, by the lock beside this file."""

import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = Path(__file__).with_name("suite-packages")
OWN_NODE = ROOT / ".cache" / "node" / "bin"
LEAST = (22, 19)


@dataclass(frozen=True)
class Suites:
    """Where the suites are, and a Node.js that is new enough for them."""

    node: str
    modules: Path

    def run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run one of the packages' programs to its end."""
        command = [self.node, str(self.modules / program), *arguments]
        return subprocess.run(command, cwd=self.modules, capture_output=True, text=True, timeout=300, check=False)


def fetch_suites() -> Suites:
    """The suites in the cache, fetched when they are not there."""
    node = find_node()
    digest = hashlib.sha256((LOCK / "package-lock.json").read_bytes()).hexdigest()[:16]
    cached = ROOT / ".cache" / "mcp-suites" / digest
    if not (cached / "complete").is_file():
        shutil.rmtree(cached, ignore_errors=True)
        cached.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(LOCK / name, cached / name)
        npm = shutil.which("npm") or str(OWN_NODE / "npm")
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=cached, check=True, capture_output=True)
        (cached / "complete").touch()
    return Suites(node, cached / "node_modules")


def find_node() -> str:
    """The machine's Node.js, or the one that packaging/setup.sh has fetched; RuntimeError when neither is new enough."""
    for path in (shutil.which("node"), str(OWN_NODE / "node")):
        if path is None or not Path(path).exists():
            continue
        result = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        version = re.match(r"v(\d+)\.(\d+)", result)
        if version is not None and (int(version[1]), int(version[2])) >= LEAST:
            return path
    raise RuntimeError(f"the MCP suites need Node.js {'.'.join(map(str, LEAST))} or newer; bash packaging/test.sh installs it")


if __name__ == "__main__":
    fetch_suites()
