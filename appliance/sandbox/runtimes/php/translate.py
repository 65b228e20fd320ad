"""From the npm build of PHP to a module that imports the host's few functions: depends on the two packages alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from appliance.sandbox.php import engine
from appliance.sandbox.php.engine import IMPORTED
from appliance.sandbox.runtimes import wasmfile
from appliance.sandbox.runtimes.editor import find_node
from appliance.sandbox.runtimes.php.answers import answering_module
from appliance.sandbox.runtimes.php.module import ImportedFunction, read_globals, read_imports, read_types, write_imports
from appliance.sandbox.runtimes.wasmfile import Export, MalformedWasm, Section

PHP, BINARYEN = "@php-wasm/node-8-4", "binaryen"
BINARY = "jspi/8_4_25/php_8_4.wasm"
NEEDED = {
    PHP: (BINARY, "LICENSE", "package.json"),
    BINARYEN: ("bin/package.json", "bin/wasm-as", "bin/wasm-merge", "bin/wasm-opt", "LICENSE", "package.json"),
}
# wasmtime does not know compact imports, which Binaryen would write otherwise.
_FEATURES = ("--all-features", "--disable-compact-imports")
_PAGES = 1024
_WORK = "translating-"
# What the machine calls, and what is needed to start PHP once.
KEEP = frozenset(
    [
        "__wasm_call_ctors",
        "_emalloc",
        "fflush",
        "malloc",
        "memory",
        "php_execute_script",
        "php_lint_script",
        "php_output_end_all",
        "php_request_startup",
        "php_wasm_init",
        "wasm_set_phpini_path",
        "zend_alter_ini_entry_chars",
        "zend_memory_peak_usage",
        "zend_stream_init_filename",
    ]
)
# Data whose addresses the start must know: which extensions PHP has.
ENTRY = "_module_entry"


class TranslationFailed(Exception):
    """The message says which tool could not do its work, and why."""


class _Binaryen:
    """Its tools, which are JavaScript."""

    def __init__(self, modules: Path, work: Path) -> None:
        node = find_node()
        self._node, self._bin, self._work = node, modules / BINARYEN / "bin", work

    def __call__(self, tool: str, *arguments: str) -> None:
        command = [self._node, str(self._bin / tool), *_FEATURES, *arguments]
        done = subprocess.run(command, cwd=self._work, capture_output=True, text=True, check=False)  # noqa: S603  our own tool
        if done.returncode:
            raise TranslationFailed(f"{tool} could not translate PHP: {done.stderr.strip()[-600:]}")


def translated_path(modules: Path, packages: dict[str, str]) -> Path:
    """Where the translation of these packages lies: beside them, under what it depends on, so that it is made once."""
    sources = [Path(wasmfile.__file__), Path(engine.__file__), *sorted(Path(__file__).parent.glob("*.py"))]
    depends = [each.read_bytes() for each in sources if each.name != "template.py"]
    key = hashlib.sha256(b"".join([*depends, json.dumps(packages, sort_keys=True).encode()])).hexdigest()
    return modules.parent / f"php-{key[:16]}.wasm"


def prune(modules: Path) -> None:
    """Remove what came with the packages and nobody reads: most of their bytes."""
    for name, paths in NEEDED.items():
        for path in sorted((modules / name).rglob("*"), reverse=True):
            if path.is_file() and path.relative_to(modules / name).as_posix() not in paths:
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def translate(modules: Path, target: Path) -> None:
    """Write the translated module to `target`; TranslationFailed when the tools cannot."""
    for former in target.parent.glob("php-*.wasm"):
        former.unlink()
    for interrupted in target.parent.glob(f"{_WORK}*"):
        shutil.rmtree(interrupted)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=_WORK) as folder:
        work = Path(folder)
        run = _Binaryen(modules, work)
        # Exceptions as PHP's compiler wrote them are a proposal that was given up; wasmtime knows the one that replaced it.
        run("wasm-opt", "--emit-exnref", "--translate-to-exnref", str(modules / PHP / BINARY), "-o", "exnref.wasm")
        exported, functions = _narrow(work / "exnref.wasm", work / "php.wasm")
        (work / "answers.wat").write_text(functions)
        run("wasm-as", "answers.wat", "-o", "answers.wasm")
        run("wasm-merge", "php.wasm", "php", "answers.wasm", "env", "-o", "merged.wasm")
        _keep_exports(work / "merged.wasm", exported, work / "done.wasm")
        (work / "done.wasm").replace(target)


def _narrow(source: Path, target: Path) -> tuple[frozenset[str], str]:
    """Keep few exports, ask everything of one module; answers the exports' names and the text of that module."""
    sections = wasmfile.read_sections(source.read_bytes())
    bodies = {each.id: each.body for each in sections}
    types, imports = read_types(bodies[wasmfile.TYPE]), read_imports(bodies[wasmfile.IMPORT])
    variables = read_globals(bodies[wasmfile.GLOBAL])
    exports = [each for each in wasmfile.read_exports(bodies[wasmfile.EXPORT]) if each.name in KEEP or each.name.endswith(ENTRY)]
    exports += [Export(global_name(number), 3, number) for number, each in enumerate(variables) if each.mutable]
    missing = KEEP - {each.name for each in exports}
    if missing:
        raise TranslationFailed(f"this build of PHP does not export {', '.join(sorted(missing))}")
    imported = [ImportedFunction("env", each.name, each.type) for each in imports]
    changed = {wasmfile.IMPORT: write_imports(imported), wasmfile.EXPORT: wasmfile.write_exports(exports)}
    _rewrite(sections, changed, target)
    functions = {each.name: (each.space, types[each.type]) for each in imports}
    return frozenset(each.name for each in exports), answering_module(functions, _PAGES)


def _keep_exports(source: Path, names: frozenset[str], target: Path) -> None:
    sections = wasmfile.read_sections(source.read_bytes())
    bodies = {each.id: each.body for each in sections}
    imported = [each for each in read_imports(bodies[wasmfile.IMPORT]) if each.space != "host" or each.name not in IMPORTED]
    if imported:
        raise MalformedWasm(f"PHP still asks for {', '.join(each.name for each in imported)}")
    exports = [each for each in wasmfile.read_exports(bodies[wasmfile.EXPORT]) if each.name in names]
    _rewrite(sections, {wasmfile.EXPORT: wasmfile.write_exports(exports)}, target)


def _rewrite(sections: list[Section], changed: dict[int, bytes], target: Path) -> None:
    remaining = [Section(each.id, changed.get(each.id, each.body)) for each in sections if each.id != wasmfile.CUSTOM]
    target.write_bytes(wasmfile.write_sections(remaining))


def global_name(number: int) -> str:
    """Under which name a mutable global is exported, so that its value can be frozen."""
    return f"global{number}"
