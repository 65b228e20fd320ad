"""`python -m appliance.sandbox.runtimes.prepare`: fetches the locked npm packages and compiles them, once."""

from __future__ import annotations

import argparse
import base64
import ctypes
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import wasmtime

from appliance.core import pools
from appliance.core.config import environment
from appliance.sandbox import runtimes
from appliance.sandbox.php.engine import configuration as php_configuration
from appliance.sandbox.runtimes import editor, intl, packages
from appliance.sandbox.runtimes.php.template import make_template as make_php
from appliance.sandbox.runtimes.php.translate import BINARYEN, TranslationFailed, prune, translate, translated_path
from appliance.sandbox.runtimes.php.translate import PHP as PHP_PACKAGE
from appliance.sandbox.runtimes.template import make_template
from appliance.sandbox.typecheck.template import make_template as make_checker
from appliance.sandbox.worker import native
from appliance.sandbox.worker.engine import configuration

SANDBOX = ("quickjs-wasi", "@swc/wasm-typescript", "swagger-ui-dist", "typescript", PHP_PACKAGE, BINARYEN, *runtimes.FORMATJS)
EDITOR = (editor.BUNDLER, *editor.PACKAGES)
NOTICES = {"typescript": ("LICENSE.txt", "ThirdPartyNoticeText.txt"), **dict.fromkeys(runtimes.FORMATJS, ("LICENSE.md",))}
ASSET_FILES = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png", "LICENSE", "NOTICE")
BACKGROUND_NICENESS = 19


class PreparationFailed(Exception):
    """The message says what to do next."""


@contextmanager
def _step(what: str) -> Iterator[None]:
    print(f"    {what} …", file=sys.stderr, flush=True)  # a line of its own: two steps may run at a time
    started = time.perf_counter()
    yield
    print(f"    {what}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)


def _fetch(out: Path, npm: str | None) -> Path:
    """The packages, without what nobody reads."""
    if not packages.is_fetched(out):
        with _step("fetching npm packages " + ", ".join(SANDBOX + EDITOR)):
            packages.fetch(out, npm)
    modules = packages.fetch(out, npm)
    prune(modules)
    intl.prune(modules)
    return modules


def _swc_binary(package: Path) -> bytes:
    """The package carries its module as base64 inside its JavaScript."""
    match = re.search(r"'([A-Za-z0-9+/=]{100000,})'", (package / "wasm.js").read_text())
    if match is None:
        raise PreparationFailed(f"{package} holds no WebAssembly module; is it the version that the lock names?")
    return base64.b64decode(match.group(1))


def _versions(modules: Path, names: Iterable[str] = SANDBOX) -> dict[str, str]:
    out = {}
    for name in names:
        try:
            out[name] = str(json.loads((modules / name / "package.json").read_bytes())["version"])
        except OSError:
            raise PreparationFailed(f"{modules} does not contain {name}; remove the folder and start again") from None
    return out


def _are_there(out: Path, files: dict[str, str]) -> bool:
    return all((out / name).is_file() and runtimes.digest((out / name).read_bytes()) == known for name, known in files.items())


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _copy_assets(modules: Path, out: Path) -> list[str]:
    files = []
    for name in ASSET_FILES:
        files.append(f"{runtimes.ASSETS}/{name}")
        _copy(modules / "swagger-ui-dist" / name, out / files[-1])
    return files + _copy_notices(modules, out, SANDBOX)


def _copy_notices(modules: Path, out: Path, names: Iterable[str]) -> list[str]:
    files = []
    for name in names:
        for notice in NOTICES.get(name, ("LICENSE",)):
            label = "" if notice.startswith("LICENSE") else f"-{Path(notice).stem}"
            files.append(f"licenses/{name.replace('@', '').replace('/', '-')}{label}.txt")
            _copy(modules / name / notice, out / files[-1])
    return files


def _compile(out: Path, name: str, binary: bytes, config: wasmtime.Config | None = None) -> None:
    # The configuration with places and the one without compile to the same code; places are of the running engine only.
    engine = wasmtime.Engine(config or configuration(slots=1))
    with _step(f"compiling {name}"):
        module = native.compile_module(engine, binary)
        _release_memory()
        runtimes.replace(out / name, module.serialize())


def _release_memory() -> None:
    """Return freed memory to the system: a compilation of PHP leaves 300 MB of it in pieces, which what follows would add to."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)


def _make_javascript(modules: Path, out: Path) -> dict[str, Any]:
    """Everything that is not a part of its own."""
    with _step("making the JavaScript template"):
        template, boot = make_template((modules / "quickjs-wasi" / "quickjs.wasm").read_bytes())
    runtimes.replace(out / runtimes.TEMPLATE, template)
    _compile(out, runtimes.QUICKJS, template)
    _compile(out, runtimes.SWC, _swc_binary(modules / "@swc/wasm-typescript"))
    files = [runtimes.TEMPLATE, runtimes.QUICKJS, runtimes.SWC, *_copy_assets(modules, out)]
    return {"circumstances": runtimes.circumstances(), "boot": asdict(boot), "files": runtimes.digests_of(out, files)}


def _make_types(modules: Path, out: Path) -> tuple[list[str], dict[str, Any]]:
    with _step("making the template of the type checker"):
        quickjs = (modules / "quickjs-wasi" / "quickjs.wasm").read_bytes()
        template, boot = make_checker(quickjs, modules / "typescript" / "lib")
    _compile(out, runtimes.TYPES, template)
    return [runtimes.TYPES], {"boot": asdict(boot)}


def _make_intl(modules: Path, out: Path) -> tuple[list[str], dict[str, Any]]:
    with _step("packing languages and time zones"):
        intl.write(out / runtimes.INTL, intl.pack(modules, (modules / "quickjs-wasi" / "quickjs.wasm").read_bytes()))
    return [runtimes.INTL], {}


def _make_php(modules: Path, out: Path) -> tuple[list[str], dict[str, Any]]:
    translated = translated_path(modules, {name: _versions(modules)[name] for name in (PHP_PACKAGE, BINARYEN)})
    if not translated.is_file():
        with _step("translating PHP's exceptions and imports"):
            translate(modules, translated)
    with _step("starting PHP once"):
        template, boot = make_php(translated.read_bytes())
    _release_memory()
    _compile(out, runtimes.PHP, template, php_configuration())
    return [runtimes.PHP], {"boot": asdict(boot)}


# From the packages' folder and the output's to the files and facts of a part.
Maker = Callable[[Path, Path], tuple[list[str], dict[str, Any]]]
MAKERS: Mapping[str, Maker] = {"intl": _make_intl, "types": _make_types, "php": _make_php}
# What the appliance needs to start; the rest can follow while it runs.
START = "start"
TARGETS = (START, *runtimes.DEFERRED)


def prepare(modules: Path, out: Path, makers: Mapping[str, Maker] = MAKERS, targets: Sequence[str] = TARGETS) -> None:
    """Bring `targets` in `out` to what `runtimes.load` accepts; what is so already stays as it is.

    Each is in the manifest as soon as it is done, so that whatever interrupts the preparation leaves the earlier ones.
    """
    if START in targets:
        _prepare_start(modules, out, makers)
    for part in runtimes.PARTS:
        if part.deferred and part.name in targets:
            before = runtimes.read_manifest(out)
            parts = before.get("parts", {})
            _save(out, before, {"parts": {**parts, part.name: _prepare_part(modules, out, part, makers[part.name], parts)}})


def link_prepared(prepared: Path, out: Path) -> None:
    """Link the runtimes of another folder, as of an image, into `out`; without effect unless all fit this version and machine."""
    try:
        parts = runtimes.load(prepared).parts
    except runtimes.RuntimesMissing:
        return
    if len(parts) < len(runtimes.PARTS):
        return
    manifest = runtimes.read_manifest(prepared)
    for section in (manifest, manifest["editor"], *manifest["parts"].values()):
        for name in section["files"]:
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"{path.name}.new")
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(prepared / name)
            temporary.replace(path)
    runtimes.save(out, manifest)


def _save(out: Path, before: dict[str, Any], changes: dict[str, Any]) -> None:
    manifest = before | changes
    if manifest != before:
        runtimes.save(out, manifest)


def _prepare_start(modules: Path, out: Path, makers: Mapping[str, Maker]) -> None:
    before = runtimes.read_manifest(out)
    with pools.open_pool(pools.PREPARATION) as beside:  # the compiler lets other threads run
        javascript = beside.submit(_prepare_javascript, modules, out, before)
        parts = {}
        for part in runtimes.PARTS:
            known = before.get("parts", {})
            if not part.deferred:
                parts[part.name] = _prepare_part(modules, out, part, makers[part.name], known)
            elif _is_prepared(modules, out, part, known.get(part.name, {})):
                parts[part.name] = known[part.name]
        editor_files = _prepare_editor(modules, out, before.get("editor", {}))
        changes = javascript.result()
    _save(out, before, {**changes, "parts": parts, "editor": editor_files})


def _prepare_javascript(modules: Path, out: Path, before: Mapping[str, Any]) -> dict[str, Any]:
    """What must change in the manifest."""
    versions = _versions(modules)
    same = before.get("circumstances") == runtimes.circumstances() and before.get("packages") == versions
    if same and _are_there(out, before["files"]):
        return {}
    return {**_make_javascript(modules, out), "packages": versions}


def _prepare_editor(modules: Path, out: Path, known: dict[str, Any]) -> dict[str, Any]:
    """What a page of the console loads; nothing of the sandbox depends on it."""
    inputs = {"packages": _versions(modules, EDITOR), "sources": editor.sources()}
    if {name: known.get(name) for name in inputs} == inputs and _are_there(out, known["files"]):
        return dict(known)
    with _step("bundling the editor"):
        files = editor.bundle(modules, out) + _copy_notices(modules, out, editor.PACKAGES)
    return {**inputs, "files": runtimes.digests_of(out, files)}


def _inputs(modules: Path, part: runtimes.Part) -> dict[str, Any]:
    """What a part is made of."""
    versions = {name: version for name, version in _versions(modules).items() if name in part.packages}
    return {"circumstances": part.circumstances(), "packages": versions}


def _is_prepared(modules: Path, out: Path, part: runtimes.Part, known: dict[str, Any]) -> bool:
    inputs = _inputs(modules, part)
    return {name: known.get(name) for name in inputs} == inputs and _are_there(out, known["files"])


def _prepare_part(modules: Path, out: Path, part: runtimes.Part, make: Maker, before: dict[str, Any]) -> dict[str, Any]:
    known = before.get(part.name, {})
    if _is_prepared(modules, out, part, known):
        return dict(known)
    files, facts = make(modules, out)
    return {**_inputs(modules, part), "files": runtimes.digests_of(out, files), "facts": facts}


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="prepare", description=__doc__)
    parser.add_argument("--packages", type=Path, help="node_modules with the packages (default: fetched by npm from the lock)")
    usual = environment("GOS_RUNTIMES") or runtimes.default_folder()
    parser.add_argument("--out", type=Path, default=usual, help="where the runtimes go (default: %(default)s)")
    parser.add_argument("--prepared", type=Path, help="a folder whose runtimes are used if they fit this machine (default: none)")
    parser.add_argument("--npm", help="the npm to fetch with (default: the one on PATH)")
    parser.add_argument("--only", action="append", choices=TARGETS, help="prepare only this; may be repeated")
    parser.add_argument("--background", action="store_true", help="use only the time that other processes leave")
    return parser.parse_args()


def main() -> int:
    chosen = _parse_arguments()
    if chosen.background:
        os.nice(BACKGROUND_NICENESS)
    out = chosen.out.absolute()  # the programs that make the parts run in folders of their own
    try:
        out.mkdir(parents=True, exist_ok=True)
        with runtimes.lock(out):
            if chosen.prepared:
                link_prepared(chosen.prepared.absolute(), out)
            modules = chosen.packages.absolute() if chosen.packages else _fetch(out, chosen.npm)
            prepare(modules, out, targets=chosen.only or TARGETS)
    except OSError as error:
        advice = "free disk space or allow writing there, then try again"
        print(f"\n{error.filename or out}: {error.strerror}; {advice}", file=sys.stderr)
        return 1
    except (PreparationFailed, packages.FetchFailed, TranslationFailed, editor.BundleFailed, intl.DataMalformed) as failure:
        print(f"\n{' '.join(str(failure).split())}", file=sys.stderr)  # one line, which the background reports
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
