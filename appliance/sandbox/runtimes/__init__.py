"""The prepared WebAssembly runtimes: which files belong together, and that nothing else is ever loaded."""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

MANIFEST, LOCK = "manifest.json", "lock"
QUICKJS, SWC, TEMPLATE, INTL = "quickjs.cwasm", "swc.cwasm", "template.wasm", "intl.zip"
TYPES, PHP = "types.cwasm", "php.cwasm"
# How host and template speak: whoever changes the messages of prelude.js, the imports of `engine`, the exports that `vm` calls or
# the sizes in `vm` counts this up; steps that sleep in a template of another protocol cannot go on.
PROTOCOL = 1
# The section of the template that says so, and where things are in its memory.
FACTS = "template"
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
class Part:
    """A runtime that takes long to prepare: it is made anew only when one of its own sources or packages has changed.

    `sources` are paths from the folder of the sandbox. The appliance starts without the parts that are `deferred`, which are
    prepared in the background.
    """

    name: str
    sources: tuple[str, ...]
    packages: tuple[str, ...]
    deferred: bool = False

    def circumstances(self) -> dict[str, str]:
        """Everything besides its packages that it depends on."""
        folder = Path(__file__).parents[1]
        return {**_machine(), "sources": digest(b"".join((folder / each).read_bytes() for each in self.sources))}


FORMATJS = tuple(
    f"@formatjs/intl-{name}"
    for name in ("datetimeformat", "listformat", "numberformat", "pluralrules", "relativetimeformat")
)


@dataclass(frozen=True)
class PreparedPart:
    """What the manifest says of a part: `facts` is what whoever loads its files has to know of them."""

    circumstances: dict[str, str]
    packages: dict[str, str]
    files: dict[str, str]
    facts: dict[str, Any]


PARTS = (
    Part(
        "intl",
        (
            *("intl/intl.js", "intl/collator.js", "intl/dates.js", "intl/services.js", "worker/locales.py"),
            *("runtimes/intl.py", "runtimes/editor.py", "runtimes/entrypoints.py", "runtimes/wasmfile.py"),
        ),
        ("quickjs-wasi", *FORMATJS),
    ),
    Part(
        "types",
        ("typecheck/checker.js", "typecheck/template.py", "runtimes/entrypoints.py", "runtimes/wasmfile.py"),
        ("quickjs-wasi", "typescript"),
        deferred=True,
    ),
    Part(
        "php",
        (
            *("php/engine.py", "php/files.py", "php/machine.py", "php/php.ini", "php/prelude.php", "worker/instance.py"),
            *("runtimes/php/answers.py", "runtimes/php/module.py", "runtimes/php/template.py", "runtimes/php/translate.py"),
            "runtimes/wasmfile.py",
        ),
        ("@php-wasm/node-8-4", "binaryen"),
        deferred=True,
    ),
)
DEFERRED = tuple(part.name for part in PARTS if part.deferred)


@dataclass(frozen=True)
class Runtimes:
    """A folder of prepared runtimes; `digests` by file name, `engine` names what compiled code depends on.

    `parts` has those that are prepared and fit this version and machine; only deferred ones can be missing.
    """

    folder: Path
    engine: str
    boot: Boot
    digests: dict[str, str]
    parts: dict[str, PreparedPart]

    def verified(self, name: str) -> Path:
        """The path of a file whose content is what was prepared; compiled code is loaded from nowhere else."""
        path = self.folder / name
        expected = self.digests.get(name)
        if expected is None or not path.is_file() or digest(path.read_bytes()) != expected:
            raise RuntimesMissing(Sentence(
                "%(path)s is not the file that was prepared; %(folder)s, which prepares it anew",
                path=path, folder=advice(self.folder),
            ))
        return path


def default_folder() -> Path:
    """Where a checkout keeps its runtimes; those of an installed wheel are in its environment, and go with it."""
    root = Path(__file__).resolve().parents[3]
    if (root / "pyproject.toml").is_file():
        return root / ".cache" / "runtimes"
    return Path(sys.prefix) / "share" / "gos" / "runtimes"


def advice(folder: Path) -> str:
    """The command that prepares this folder."""
    where = "" if folder == default_folder() else f" --out {folder}"
    return f"run `python -m appliance.sandbox.runtimes.prepare{where}`"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _processor() -> str:
    """What native code may use here: the flags the kernel names, else the bare architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(errors="replace") if cpuinfo.exists() else ""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    return platform.machine() + " " + digest(match.group(1).encode())[:16] if match else platform.machine()


def _machine() -> dict[str, str]:
    """What all compiled code depends on."""
    import importlib.metadata  # takes 2 MB, which the sandbox processes do without

    return {"wasmtime": importlib.metadata.version("wasmtime"), "configuration": CONFIGURATION, "processor": _processor()}


def circumstances() -> dict[str, str]:
    """Everything besides the packages that the compiled code of JavaScript steps depends on."""
    sources = Path(__file__).parent
    ours = [
        sources / "template.py",
        sources / "entrypoints.py",
        sources / "wasmfile.py",
        sources.parent / "web.js",
        sources.parent / "url.js",
        sources.parent / "prelude.js",
        sources.parent / "worker" / "instance.py",
        sources.parent / "worker" / "vm.py",
    ]
    return {**_machine(), "protocol": str(PROTOCOL), "template": digest(b"".join(each.read_bytes() for each in ours))}


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the manifest says; empty where there is none, or none that can be read."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def current_parts(manifest: dict[str, Any]) -> dict[str, PreparedPart]:
    """The parts that the manifest says were prepared for this version and machine."""
    prepared = {name: PreparedPart(**each) for name, each in manifest.get("parts", {}).items()}
    return {
        part.name: prepared[part.name]
        for part in PARTS
        if part.name in prepared and prepared[part.name].circumstances == part.circumstances()
    }


def load(folder: Path) -> Runtimes:
    """The runtimes in `folder`; RuntimesMissing if what the start needs is absent or fits other circumstances."""
    manifest = read_manifest(folder)
    if not manifest:
        raise RuntimesMissing(Sentence("no prepared runtimes in %(folder)s; %(folder2)s", folder=folder, folder2=advice(folder)))
    parts = current_parts(manifest)
    is_stale = any(part.name not in parts for part in PARTS if not part.deferred)
    if is_stale or manifest.get("circumstances") != circumstances():
        raise RuntimesMissing(Sentence(
            "the runtimes in %(folder)s were prepared for another version or machine; %(folder2)s",
            folder=folder, folder2=advice(folder),
        ))
    engine = digest(json.dumps(manifest["circumstances"], sort_keys=True).encode() + manifest["files"][QUICKJS].encode())
    digests = dict(manifest["files"])
    for each in parts.values():
        digests |= each.files
    return Runtimes(folder, engine, Boot(**manifest["boot"]), digests, parts)


def digests_of(folder: Path, files: list[str]) -> dict[str, str]:
    return {name: digest((folder / name).read_bytes()) for name in files}


def replace(path: Path, data: bytes | bytearray) -> None:
    """Write a file beside the earlier one and then replace that, which processes may still have mapped."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_bytes(data)
    temporary.replace(path)


def save(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, last: whoever finds it finds everything it names."""
    replace(folder / MANIFEST, json.dumps(manifest, indent=1).encode())


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Wait until nobody else prepares runtimes in this folder, and hold the others off."""
    with (folder / LOCK).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process prepares runtimes in this folder."""
    try:
        with (folder / LOCK).open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nothing was ever prepared here
        return False
    return False
