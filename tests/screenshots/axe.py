"""`python -m tests.screenshots.axe`: fetches the accessibility checker axe-core once, by the lock beside this file."""

import hashlib
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = Path(__file__).with_name("axe-package")
OWN_NPM = ROOT / ".cache" / "node" / "bin" / "npm"


def fetch_axe() -> str:
    """The source of axe-core, downloaded into the cache when missing."""
    digest = hashlib.sha256((LOCK / "package-lock.json").read_bytes()).hexdigest()[:16]
    folder = ROOT / ".cache" / "axe" / digest
    if not (folder / "complete").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(LOCK / name, folder / name)
        npm = shutil.which("npm") or str(OWN_NPM)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        (folder / "complete").touch()
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf8")


if __name__ == "__main__":
    fetch_axe()
