"""Preparing the runtimes: locked, checked, done once."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.sandbox import Pool, Settings, runtimes
from appliance.sandbox.runtimes import editor, intl
from appliance.sandbox.runtimes import prepare as preparing
from appliance.sandbox.runtimes.prepare import prepare
from appliance.sandbox.runtimes.wasmfile import MalformedWasm, read_sections, read_unsigned, signed, unsigned

LOCK = Path(__file__).parents[2] / "packaging" / "runtimes" / "package-lock.json"


def test_the_lock_names_hashes_and_no_host() -> None:
    packages = json.loads(LOCK.read_text())["packages"]
    assert all("integrity" in package for name, package in packages.items() if name)
    assert not any("resolved" in package for package in packages.values())
    assert "://" not in LOCK.read_text()


def test_versions_are_exact() -> None:
    dependencies = json.loads((LOCK.parent / "package.json").read_text())["dependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in dependencies.values())


def test_a_second_preparation_does_nothing(prepared: None) -> None:
    manifest = runtimes.default_folder() / runtimes.MANIFEST
    before = manifest.stat().st_mtime_ns
    done = subprocess.run([sys.executable, "-m", "appliance.sandbox.runtimes.prepare"], capture_output=True, check=True)
    assert done.stderr == b""
    assert manifest.stat().st_mtime_ns == before


def test_folders_may_be_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: list[Path] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(preparing, "prepare", lambda *folders, targets: arguments.extend(folders))
    monkeypatch.setattr(sys, "argv", ["prepare", "--packages", "modules", "--out", "runtimes"])
    assert preparing.main() == 0
    assert arguments == [tmp_path / "modules", tmp_path / "runtimes"]


@pytest.fixture
def copied(prepared: None, tmp_path: Path) -> Path:
    """The prepared runtimes in a folder that a test may spoil."""
    for name in (runtimes.MANIFEST, runtimes.QUICKJS, runtimes.SWC):
        shutil.copyfile(runtimes.default_folder() / name, tmp_path / name)
    return tmp_path


def test_a_file_that_was_not_prepared_here_is_refused(copied: Path) -> None:
    with (copied / runtimes.QUICKJS).open("r+b") as handle:
        handle.seek(100_000)
        handle.write(b"altered")
    with pytest.raises(runtimes.RuntimesMissing, match="not the file that was prepared"):
        Pool(Settings(runtimes=copied))


def test_runtimes_of_another_version_are_refused(copied: Path) -> None:
    path = copied / runtimes.MANIFEST
    path.write_text(path.read_text().replace('"wasmtime": "', '"wasmtime": "1'))
    with pytest.raises(runtimes.RuntimesMissing, match="another version or machine"):
        Pool(Settings(runtimes=copied))


def test_a_part_of_other_sources_is_refused_and_depends_on_its_own_sources_only(copied: Path) -> None:
    parts = runtimes.load(copied).parts
    path = copied / runtimes.MANIFEST
    path.write_text(path.read_text().replace(parts["types"].circumstances["sources"], "0" * 64))
    assert set(runtimes.load(copied).parts) == {"intl", "php"}  # the start does not need it
    path.write_text(path.read_text().replace(parts["intl"].circumstances["sources"], "0" * 64))
    with pytest.raises(runtimes.RuntimesMissing, match="another version or machine"):
        Pool(Settings(runtimes=copied))
    assert not any("prelude.js" in each or "vm.py" in each for part in runtimes.PARTS for each in part.sources)


def test_only_stale_parts_are_prepared_again(copied: Path) -> None:
    """The part of another package version only is prepared anew, and all else stays."""
    calls: list[str] = []
    path = copied / runtimes.MANIFEST
    manifest = json.loads(path.read_text())
    manifest["parts"]["types"]["packages"]["typescript"] = "5.9.2"
    path.write_text(json.dumps(manifest))
    modules = runtimes.default_folder() / "npm" / "node_modules"
    for name in [each for each in manifest["files"] if not (copied / each).exists()]:
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(runtimes.default_folder() / name, copied / name)
    for name in (runtimes.PHP, runtimes.INTL):
        (copied / name).symlink_to(runtimes.default_folder() / name)

    def make(modules: Path, out: Path) -> tuple[list[str], dict[str, Any]]:
        calls.append("types")
        (out / runtimes.TYPES).write_bytes(b"made")
        return [runtimes.TYPES], {"boot": {}}

    def refuse(modules: Path, out: Path) -> tuple[list[str], dict[str, Any]]:
        raise AssertionError("it was as it should be")

    before = (copied / runtimes.QUICKJS).stat().st_mtime_ns
    for _ in range(2):
        prepare(modules, copied, {"intl": refuse, "types": make, "php": refuse})
    assert calls == ["types"]
    assert (copied / runtimes.QUICKJS).stat().st_mtime_ns == before
    assert runtimes.load(copied).verified(runtimes.TYPES).read_bytes() == b"made"


def test_missing_runtimes_say_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(runtimes.RuntimesMissing, match=rf"`python -m appliance\.sandbox\.runtimes\.prepare --out {tmp_path}`"):
        Pool(Settings(runtimes=tmp_path))


def test_the_explorer_and_the_licences_are_there(prepared: None) -> None:
    folder = runtimes.default_folder()
    assert (folder / runtimes.ASSETS / "swagger-ui-bundle.js").stat().st_size > 500_000
    assert (folder / runtimes.ASSETS / "swagger-ui.css").is_file()
    assert {each.name for each in (folder / "licenses").iterdir()} == {
        "quickjs-wasi.txt",
        "swc-wasm-typescript.txt",
        "binaryen.txt",
        "php-wasm-node-8-4.txt",
        "swagger-ui-dist.txt",
        "typescript.txt",
        "typescript-ThirdPartyNoticeText.txt",
        *(f"{name.replace('@', '').replace('/', '-')}.txt" for name in (*editor.PACKAGES, *runtimes.FORMATJS)),
    }


def test_the_editor_is_there_packed_and_unpacked(prepared: None) -> None:
    folder = runtimes.default_folder()
    content = (folder / editor.FILE).read_bytes()
    assert b"cm-editor" in content
    assert gzip.decompress((folder / editor.PACKED).read_bytes()) == content


def test_an_image_without_node_packs_the_languages(prepared: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert set(intl._parse_dates(runtimes.default_folder() / "npm" / "node_modules")) == set(intl.LANGUAGES)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 65_536, 2**32 - 1])
def test_unsigned_numbers_are_written_as_they_are_read(value: int) -> None:
    assert read_unsigned(unsigned(value), 0) == (value, len(unsigned(value)))


def test_signed_numbers_keep_their_sign() -> None:
    assert (signed(-1), signed(63), signed(64)) == (b"\x7f", b"\x3f", b"\xc0\x00")


def test_malformed_wasm_is_refused() -> None:
    with pytest.raises(MalformedWasm):
        read_sections(b"MZ\0\0\0\0\0\0")
