"""The prepared WebAssembly runtimes: which files belong together, and that nothing else is ever loaded."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from appliance.core.errors import ConfigInvalid

MANIFEST = "manifest.json"
QUICKJS, SWC, TEMPLATE = "quickjs.cwasm", "swc.cwasm", "template.wasm"
ASSETS = "assets/swagger-ui"
# Part of what compiled code depends on: whoever changes `engine.configuration` or a size in `vm` counts this up.
CONFIGURATION = "quickjs-1"


class RuntimesMissing(ConfigInvalid):
    """The runtimes are not prepared, or not by this version of the appliance on this machine."""


@dataclass(frozen=True)
class Boot:
    """Where things are in the memory of the template; valid for exactly the template it was made with."""

    undefined: int
    start: int
    message: int
    evaluate: int


@dataclass(frozen=True)
class Runtimes:
    """A folder of prepared runtimes; `digests` by file name, `engine` names what compiled code depends on."""

    folder: Path
    engine: str
    boot: Boot
    digests: dict[str, str]

    def verified(self, name: str) -> Path:
        """The path of a file whose content is what was prepared; compiled code is loaded from nowhere else."""
        path = self.folder / name
        expected = self.digests.get(name)
        if expected is None or not path.is_file() or digest(path.read_bytes()) != expected:
            raise RuntimesMissing(f"{path} is not the file that was prepared; run packaging/setup.sh again, which prepares it anew")
        return path


def default_folder() -> Path:
    """Where a checkout keeps its runtimes."""
    return Path(__file__).resolve().parents[3] / ".cache" / "runtimes"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _processor() -> str:
    """What native code may use here: the flags the kernel names, else the bare architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(errors="replace") if cpuinfo.exists() else ""
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    return platform.machine() + " " + digest(found.group(1).encode())[:16] if found else platform.machine()


def circumstances() -> dict[str, str]:
    """Everything besides the sources that compiled code depends on."""
    sources = Path(__file__).parent
    ours = [
        sources / "template.py",
        sources / "entrypoints.py",
        sources / "wasmfile.py",
        sources.parent / "prelude.js",
        sources.parent / "vm.py",
    ]
    return {
        "wasmtime": importlib.metadata.version("wasmtime"),
        "configuration": CONFIGURATION,
        "processor": _processor(),
        "template": digest(b"".join(each.read_bytes() for each in ours)),
    }


def load(folder: Path) -> Runtimes:
    """The runtimes in `folder`, or RuntimesMissing when they are absent or fit other circumstances."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError):
        raise RuntimesMissing(f"no prepared runtimes in {folder}; run `python -m appliance.sandbox.runtimes.prepare`") from None
    if manifest.get("circumstances") != circumstances():
        raise RuntimesMissing(
            f"the runtimes in {folder} were prepared for another version or machine; "
            "run `python -m appliance.sandbox.runtimes.prepare`"
        )
    engine = digest(json.dumps(manifest["circumstances"], sort_keys=True).encode() + manifest["files"][QUICKJS].encode())
    return Runtimes(folder, engine, Boot(**manifest["boot"]), dict(manifest["files"]))


def save(folder: Path, boot: Boot, packages: dict[str, str], files: list[str]) -> None:
    """Write the manifest last: whoever finds it finds everything it names."""
    manifest = {
        "circumstances": circumstances(),
        "packages": packages,
        "boot": asdict(boot),
        "files": {name: digest((folder / name).read_bytes()) for name in files},
    }
    temporary = folder / (MANIFEST + ".new")
    temporary.write_text(json.dumps(manifest, indent=1))
    temporary.replace(folder / MANIFEST)
