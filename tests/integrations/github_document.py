"""`python -m tests.integrations.github_document`: fetches GitHub's published document once, by version and hash."""

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, MEMBER = "@octokit/openapi@23.0.2", "package/generated/api.github.com.json"
INTEGRITY = "pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg=="


def fetch_document() -> Path:
    """The file in the cache, fetched when it is not there."""
    cached = ROOT / ".cache" / "documents" / f"github-{hashlib.sha256(INTEGRITY.encode()).hexdigest()[:16]}.json"
    if not cached.is_file():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cached.parent) as folder:
            _fetch(Path(folder)).replace(cached)
    return cached


def _fetch(folder: Path) -> Path:
    npm = shutil.which("npm") or shutil.which(str(ROOT / ".cache" / "node" / "bin" / "npm"))
    if npm is None:
        raise RuntimeError("npm is needed once to fetch GitHub's document; bash packaging/test.sh installs it")
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--loglevel=error"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (archive,) = folder.glob("*.tgz")
    if base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() != INTEGRITY:
        raise RuntimeError(f"{PACKAGE} does not have the expected hash")
    with tarfile.open(archive) as opened:
        member = opened.extractfile(MEMBER)
        if member is None:
            raise RuntimeError(f"{PACKAGE} has no {MEMBER}")
        (folder / "document.json").write_bytes(member.read())
    return folder / "document.json"


if __name__ == "__main__":
    fetch_document()
