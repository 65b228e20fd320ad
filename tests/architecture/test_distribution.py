"""What is shipped: the wheel, the locks, the scripts, the service files."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source_tree import ROOT, name_of, project_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCKS = sorted((ROOT / "packaging").glob("*.lock"))
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)", re.MULTILINE)
SCRIPTS = [path for path in project_files() if path.suffix == ".sh" or path == ROOT / ".ci/run"]


def pins_of(lock: Path) -> dict[str, str]:
    return {canonicalize_name(match["name"]): match["version"] for match in PIN.finditer(lock.read_text("utf-8"))}


TEAM_TEST = """
import pytest

@pytest.mark.gos_solution("starter")
def test_an_order_is_taken_in(gos, gos_tenant, gos_mail):
    execution = gos_tenant.execute("order-intake", {"orders": "number,ordered_at\\n"})
    assert (execution["status"], gos_mail.letters) == ("succeeded", [])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("gos_appliance-*.whl")
    return built


def test_the_wheel_carries_pages_starter_and_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        lock = archive.read("appliance/locks/requirements.lock")  # from which `gos sbom` takes the hashes
    assert lock == (ROOT / "packaging/requirements.lock").read_bytes()
    parts = [Path(name).parts for name in names]
    for needed in (("appliance", "ui", "templates"), ("appliance", "ui", "static"), ("appliance", "starter")):
        assert any(part[: len(needed)] == needed for part in parts), f"the wheel lacks {'/'.join(needed)}"
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {part[0] for part in parts if not part[0].endswith(".dist-info")} == {"appliance"}


def test_the_wheel_alone_makes_a_first_run(wheel: Path, tmp_path: Path) -> None:
    """Installed beside nothing but its dependencies: starter, templates and migrations come from the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GOS_")}
    own = {
        "PYTHONPATH": str(tmp_path / "installed"),
        "GOS_DATA": str(tmp_path / "data"),
        "GOS_RUNTIMES": str(ROOT / ".cache/runtimes"),
    }
    locate = [sys.executable, "-c", "import appliance, appliance.app; print(appliance.__file__)"]
    result = subprocess.run(locate, cwd=tmp_path, env=inherited | own, capture_output=True, text=True, check=True)
    assert result.stdout.startswith(str(tmp_path))
    init = [sys.executable, "-m", "appliance", "init"]
    done = subprocess.run(init, cwd=tmp_path, env=inherited | own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data/first-run.json").exists()


def test_the_wheel_alone_prepares_runtimes_and_runs_a_teams_tests(wheel: Path, tmp_path: Path) -> None:
    """The wheel has the runtimes' lock of the checkout, installs into the environment, and the test kit uses GOS_RUNTIMES."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    script = "from appliance.sandbox.runtimes import default_folder, packages; print(packages.LOCK, default_folder(), sep='\\n')"
    alone = os.environ | {"PYTHONPATH": str(tmp_path / "installed"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=alone, capture_output=True, text=True, check=True)
    lock, folder = result.stdout.splitlines()
    assert lock.startswith(str(tmp_path))
    for name in ("package.json", "package-lock.json"):
        assert (Path(lock) / name).read_bytes() == (ROOT / "packaging/runtimes" / name).read_bytes()
    assert folder == f"{sys.prefix}/share/gos/runtimes"

    (tmp_path / "test_it.py").write_text(TEAM_TEST)
    environment = alone | {"GOS_RUNTIMES": str(ROOT / ".cache/runtimes")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "appliance.testing.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("lock", LOCKS, ids=name_of)
def test_every_pin_of_a_lock_has_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text("utf-8")
    entries = [entry for entry in re.split(r"\n(?=[A-Za-z0-9])", text) if entry.strip() and not entry.startswith("#")]
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        ("requirements.lock", PROJECT["project"]["dependencies"]),
        (
            "requirements-test.lock",
            PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["test"],
        ),
    ],
)
def test_a_lock_satisfies_the_project_file(lock: str, requirements: list[str]) -> None:
    pins = pins_of(ROOT / "packaging" / lock)
    required = [Requirement(text) for text in requirements]
    missing = [str(each) for each in required if not each.specifier.contains(pins.get(canonicalize_name(each.name), "0"))]
    assert missing == [], "run packaging/lock.sh"


def test_a_lock_is_complete() -> None:
    """It is installed without looking at what the packages require, so nothing else would notice what is missing."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n")


def test_tests_run_on_the_versions_that_the_appliance_runs_on() -> None:
    running, testing = pins_of(ROOT / "packaging/requirements.lock"), pins_of(ROOT / "packaging/requirements-test.lock")
    assert running.items() <= testing.items()


@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_a_script_parses(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_images_and_services_start_the_appliance_the_same_way() -> None:
    for name in ("Containerfile", "packaging/systemd/gos.service"):
        text = (ROOT / name).read_text("utf-8")
        assert "gos init" in text, name
        assert "gos serve" in text, name


def test_a_documented_build_keeps_the_health_check() -> None:
    """Podman drops it, with a warning, from the format that it builds by default."""
    pages = [ROOT / "Containerfile", *(ROOT / "docs").glob("*.md")]
    builds = [line for page in pages for line in page.read_text("utf-8").splitlines() if "podman build" in line]
    assert builds
    assert [line for line in builds if "podman build --format docker" not in line] == []


def test_set_up_installs_first_what_the_preparation_of_runtimes_imports() -> None:
    """It begins while everything else is still being downloaded."""
    (names,) = re.findall(r"^preparing='(.*)'$", (ROOT / "packaging/setup.sh").read_text("utf-8"), re.MULTILINE)
    program = "import sys, appliance.sandbox.runtimes.prepare; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    distributions = packages_distributions()
    # setuptools comes with its own hook into every start of Python.
    needed = {name for module in loaded for name in distributions.get(module, [])} - {"setuptools", "gos-appliance"}
    assert {canonicalize_name(name) for name in needed} == set(names.split("|"))
