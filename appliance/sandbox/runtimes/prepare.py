"""`python -m appliance.sandbox.runtimes.prepare`: fetches the locked npm packages and compiles them, once."""

from __future__ import annotations

import argparse
import base64
import fcntl
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import wasmtime

from appliance.sandbox import runtimes
from appliance.sandbox.engine import configuration
from appliance.sandbox.runtimes.template import make_template

PACKAGES = ("quickjs-wasi", "@swc/wasm-typescript", "swagger-ui-dist")
ASSET_FILES = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png", "LICENSE", "NOTICE")
LOCK = Path(__file__).resolve().parents[3] / "packaging" / "runtimes"


class PreparationFailed(Exception):
    """The message says what to do next."""


@contextmanager
def _step(what: str) -> Iterator[None]:
    print(f"    {what} …", end="", file=sys.stderr, flush=True)
    started = time.perf_counter()
    yield
    print(f" {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)


def fetch(out: Path, npm: str | None) -> Path:
    """`npm ci` of packaging/runtimes into the cache, unless the same lock was fetched before; answers node_modules."""
    work = out / "npm"
    if not (LOCK / "package-lock.json").is_file():
        raise PreparationFailed("outside of a checkout there is no lock to fetch by; name a folder with the packages by --packages")
    wanted = (LOCK / "package-lock.json").read_bytes()
    stamp, modules = work / "fetched", work / "node_modules"
    if stamp.is_file() and stamp.read_text() == runtimes.digest(wanted) and modules.is_dir():
        return modules
    npm = npm or shutil.which("npm")
    if npm is None:
        raise PreparationFailed("npm is needed once to fetch the runtimes' packages; install Node.js or name it with --npm")
    with _step("fetching npm packages " + ", ".join(PACKAGES)):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(LOCK / name, work / name)
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run([npm, "ci", *options], cwd=work, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise PreparationFailed(f"npm could not fetch the packages: {done.stderr.strip()[-600:]}")
        stamp.write_text(runtimes.digest(wanted))
    return modules


def _swc_binary(package: Path) -> bytes:
    """The package carries its module as base64 inside its JavaScript."""
    found = re.search(r"'([A-Za-z0-9+/=]{100000,})'", (package / "wasm.js").read_text())
    if found is None:
        raise PreparationFailed(f"{package} holds no WebAssembly module; is it the version that the lock names?")
    return base64.b64decode(found.group(1))


def _versions(modules: Path) -> dict[str, str]:
    out = {}
    for name in PACKAGES:
        try:
            out[name] = str(json.loads((modules / name / "package.json").read_bytes())["version"])
        except OSError:
            raise PreparationFailed(f"{modules} does not contain {name}; remove the folder and start again") from None
    return out


def _is_ready(out: Path, packages: dict[str, str]) -> bool:
    try:
        ready = runtimes.load(out)
        for name in ready.digests:
            ready.verified(name)
    except runtimes.RuntimesMissing:
        return False
    known: dict[str, str] = json.loads((out / runtimes.MANIFEST).read_bytes())["packages"]
    return known == packages


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _copy_assets(modules: Path, out: Path) -> list[str]:
    files = []
    for name in ASSET_FILES:
        files.append(f"{runtimes.ASSETS}/{name}")
        _copy(modules / "swagger-ui-dist" / name, out / files[-1])
    for name in PACKAGES:
        files.append(f"licenses/{name.replace('@', '').replace('/', '-')}.txt")
        _copy(modules / name / "LICENSE", out / files[-1])
    return files


def prepare(modules: Path, out: Path) -> None:
    """Bring `out` to what `runtimes.load` accepts; does nothing when it already is."""
    packages = _versions(modules)
    if _is_ready(out, packages):
        return
    (out / runtimes.MANIFEST).unlink(missing_ok=True)
    with _step("making the JavaScript template"):
        template, boot = make_template((modules / "quickjs-wasi" / "quickjs.wasm").read_bytes())
    # The configuration with places and the one without compile to the same code; places are of the running engine only.
    engine = wasmtime.Engine(configuration(slots=1))
    (out / runtimes.TEMPLATE).write_bytes(template)
    for name, binary in ((runtimes.QUICKJS, template), (runtimes.SWC, _swc_binary(modules / "@swc/wasm-typescript"))):
        with _step(f"compiling {name}"):
            compiled = wasmtime.Module(engine, binary).serialize()
            (out / name).write_bytes(compiled)
    files = [runtimes.QUICKJS, runtimes.SWC, runtimes.TEMPLATE, *_copy_assets(modules, out)]
    runtimes.save(out, boot, packages, files)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Two starts at once must not write the same files."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="prepare", description=__doc__)
    parser.add_argument("--packages", type=Path, help="node_modules with the packages (default: fetched by npm from the lock)")
    parser.add_argument("--out", type=Path, default=runtimes.default_folder(), help="where the runtimes go (default: %(default)s)")
    parser.add_argument("--npm", help="the npm to fetch with (default: the one on PATH)")
    chosen = parser.parse_args()
    try:
        with _alone(chosen.out):
            prepare(chosen.packages or fetch(chosen.out, chosen.npm), chosen.out)
    except PreparationFailed as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
