"""The container image carries compiled runtimes, which its first start uses on a processor with the same features."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.sandbox import Pool, Program, Settings, runtimes
from appliance.sandbox.runtimes.prepare import link_prepared

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text()
PROGRAMS = (
    Program("php", "s.php", {"s.php": "<?php return fn ($input) => 6 * 7;"}),
    Program("typescript", "s.ts", {"s.ts": "export default (): number => 6 * 7"}),
)


@pytest.fixture
def image(prepared: None, tmp_path: Path) -> Path:
    """What the build leaves in `.cache/runtimes`, with a manifest that a test may change."""
    folder = tmp_path / "image"
    folder.mkdir()
    link_prepared(runtimes.default_folder(), folder)
    return folder


def test_the_first_start_of_the_image_compiles_nothing(prepared: None, tmp_path: Path) -> None:
    source, out = runtimes.default_folder(), tmp_path / "volume"
    before = {path: path.stat().st_mtime_ns for path in source.iterdir()}
    command = json.loads(CONTAINERFILE.rpartition("\nCMD ")[2])[2]
    preparation = command.partition(" && ")[0].replace("python ", f"{sys.executable} ", 1)
    environment = {**os.environ, "GOS_RUNTIMES": str(out)}
    done = subprocess.run(["sh", "-c", preparation], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")  # every step of a preparation is reported
    assert {path: path.stat().st_mtime_ns for path in source.iterdir()} == before  # the image is read-only
    pool = Pool(Settings(processes=1, slots=1, runtimes=out))
    pool.start()
    try:
        assert [each.state for each in pool.runtimes()] == ["ready", "ready"]
        assert [pool.run(program, {}).output for program in PROGRAMS] == [42, 42]
    finally:
        pool.stop()


def test_the_build_of_the_image_keeps_what_it_has_compiled() -> None:
    removed = re.findall(r"rm -rf (.*)", CONTAINERFILE)
    assert removed
    assert not any("runtimes" in each for each in removed)


def test_runtimes_for_another_processor_are_not_used(image: Path, tmp_path: Path) -> None:
    manifest = json.loads((image / runtimes.MANIFEST).read_text())
    manifest["circumstances"]["processor"] = "x86_64 0123456789abcdef"
    runtimes.save(image, manifest)
    out = tmp_path / "volume"
    out.mkdir()
    link_prepared(image, out)
    assert list(out.iterdir()) == []


def test_an_image_without_all_runtimes_is_not_used(image: Path, tmp_path: Path) -> None:
    manifest = json.loads((image / runtimes.MANIFEST).read_text())
    del manifest["parts"]["php"]
    runtimes.save(image, manifest)
    out = tmp_path / "volume"
    out.mkdir()
    link_prepared(image, out)
    assert list(out.iterdir()) == []


def test_a_new_image_replaces_the_links_of_the_former_one(image: Path, tmp_path: Path) -> None:
    out = tmp_path / "volume"
    out.mkdir()
    link_prepared(image, out)
    (image / runtimes.PHP).unlink()
    assert not (out / runtimes.PHP).exists()
    link_prepared(runtimes.default_folder(), out)
    assert runtimes.load(out).verified(runtimes.PHP).is_file()
