"""The editor of drafts as one file for the browser, made of `ui/editor` and the packages that it names."""

import gzip
import shutil
import subprocess
from pathlib import Path

from appliance.core.interface import ui_folder

from . import digest

BUNDLER = "esbuild"
FILE = "assets/editor/editor.js"
PACKED = f"{FILE}.gz"
PACKAGES = (
    *(f"@codemirror/{name}" for name in ("autocomplete", "commands", "lang-javascript", "lang-json", "lang-php", "lang-yaml")),
    *(f"@codemirror/{name}" for name in ("language", "lint", "search", "state", "view")),
    "@lezer/highlight",
)


class BundleFailed(Exception):
    """The message says what to do next."""


def sources() -> str:
    """Identifies what is bundled, besides the packages."""
    return digest(b"".join(path.read_bytes() for path in sorted((ui_folder() / "editor").glob("*.js"))))


def find_bundler(modules: Path) -> str:
    """The program that bundles JavaScript; BundleFailed when that of this platform is not there."""
    programs = sorted(modules.glob("@esbuild/*/bin/esbuild"))
    if not programs:
        raise BundleFailed(f"{modules} holds no esbuild for this platform; remove the folder and start again")
    return str(programs[0])


def find_node() -> str:
    """Node.js, which some packages need once; BundleFailed when it is not installed."""
    node = shutil.which("node")
    if node is None:
        text = "Node.js is needed once to prepare the runtimes; install it, or start by packaging/run.sh, which brings it"
        raise BundleFailed(text)
    return node


def bundle(modules: Path, out: Path) -> list[str]:
    """Write the bundle below `out` and answer its file; BundleFailed when the bundler of this platform is not there."""
    (out / FILE).parent.mkdir(parents=True, exist_ok=True)
    command = [
        find_bundler(modules), str(ui_folder() / "editor" / "editor.js"), "--bundle", "--minify", "--format=esm", "--target=es2022",
        "--legal-comments=none", "--log-level=error", f"--outfile={out / FILE}",
    ]  # fmt: skip
    done = subprocess.run(command, env={"NODE_PATH": str(modules)}, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise BundleFailed(f"the editor could not be bundled: {done.stderr.strip()[-600:]}")
    (out / PACKED).write_bytes(gzip.compress((out / FILE).read_bytes(), 9, mtime=0))
    return [FILE, PACKED]
