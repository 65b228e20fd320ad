"""The container image, built as the Containerfile says and run as it says: without root, on a read-only file system.

.venv/bin/python -m tests.image [--image NAME]

Needs root and Debian's packages buildah and mmdebstrap, but no container engine and no registry of images: the base is made of
Debian's packages, and trusts what this machine trusts. `--image` runs one that was built before.

The image has to start, execute the sample and find nothing wrong with itself; to write to nothing but its volume and /tmp; to end
within the grace period of `compose.yaml` when it is told to stop; and to start again with what it has kept. Takes ten minutes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from appliance.connectors.testing import free_port
from tests.readiness import wait_ready

ROOT = Path(__file__).parents[2]
NAME, BASE = "localhost/gos-appliance", "localhost/gos-base"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
PACKAGES = "ca-certificates,python3,python3-venv,python-is-python3"
GRACE, START = 40.0, 120.0  # seconds; a first start on another kind of processor compiles for longer

# As an engine does: the image's file system read-only, its volume at /data, a /tmp of its own, and the names of hosts.
ENTER = """set -e
root="$1" volume="$2" user="$3"; shift 3
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$volume" "$root/data"
for file in hosts resolv.conf; do touch "$root/etc/$file"; mount --bind "/etc/$file" "$root/etc/$file"; done
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
exec chroot --userspec="$user" "$root" "$@"
"""


def run(*command: str, cwd: Path = ROOT) -> str:
    """The output of a command that must succeed."""
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    return subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, check=True).stdout.decode().strip()


def build_base(folder: Path) -> None:
    """Debian with its Python, as the public base image is, and the certificate authorities of this machine."""
    run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(folder / "base.tar"))
    container = run("buildah", "from", "scratch")
    run("buildah", "add", "--quiet", container, str(folder / "base.tar"), "/")
    run("buildah", "add", "--quiet", container, str(AUTHORITIES), str(AUTHORITIES))
    run("buildah", "config", "--env", f"NODE_EXTRA_CA_CERTS={AUTHORITIES}", container)
    run("buildah", "commit", "--quiet", "--rm", container, BASE)


def build_image(folder: Path) -> None:
    """What is committed, built as the Containerfile says."""
    run("git", "clone", "--quiet", str(ROOT), str(folder / "source"))
    options = ("--format", "docker", "--pull-never", "--build-arg", f"BASE={BASE}", "--tag", NAME)
    run("buildah", "build", *options, ".", cwd=folder / "source")


@contextmanager
def mounted(image: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The file system of the image, and how it is to be run."""
    container = run("buildah", "from", "--pull-never", image)
    try:
        settings = json.loads(run("buildah", "inspect", container))["Docker"]["config"]
        yield Path(run("buildah", "mount", container)), settings
    finally:
        run("buildah", "rm", container)


class Container:
    """The image with a volume, entered as a container engine enters it."""

    def __init__(self, root: Path, settings: dict[str, Any], volume: Path) -> None:
        self.settings, self.port = settings, free_port()
        environment = ["env", "-i", f"--chdir={settings['WorkingDir']}", *settings["Env"], f"GOS_PORT={self.port}"]
        enter = ["unshare", "--mount", "sh", "-c", ENTER, "enter", str(root), str(volume), settings["User"]]
        self._command = [*enter, *environment]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._command, *command], capture_output=True, text=True, check=False)

    @contextmanager
    def started(self) -> Iterator[httpx.Client]:
        """A client of the running appliance; it has to end by itself when it is told to."""
        with subprocess.Popen([*self._command, *self.settings["Cmd"]]) as process:
            try:
                wait_ready(self.port, seconds=START, check=lambda: process.poll() is None, scheme="https")
                first = json.loads(self.run("cat", "/data/first-run.json").stdout)
                headers = {"Host": f"demo.localhost:{self.port}", "X-API-Key": first["api_key"]}
                with httpx.Client(base_url=f"https://127.0.0.1:{self.port}", headers=headers, verify=False, timeout=60) as client:  # noqa: S501  # loopback
                    yield client
                process.terminate()
                expect(process.wait(GRACE) == 0, "it ends with 0 when it is told to stop")
            finally:
                process.kill()


def expect(holds: object, promise: str) -> None:
    """Report a promise; exits if it does not hold."""
    print(f"{'ok  ' if holds else 'FAIL'}  {promise}", flush=True)
    if not holds:
        sys.exit(1)


def check_image(image: str, volume: Path) -> None:
    with mounted(image) as (root, settings):
        user = settings["User"].partition(":")[0]
        expect(user not in ("", "0", "root"), f"its user is {user}, not root")
        look, *health_check = settings.get("Healthcheck", {}).get("Test", ["NONE"])
        expect(look == "CMD", "it has a health check")
        expect((root / "opt/gos/sbom.cdx.json").stat().st_size > 0, "it has a bill of materials")
        shutil.chown(volume, int(user), int(user))
        volume.chmod(0o700)
        container = Container(root, settings, volume)
        began = time.time()
        with container.started() as client:
            expect(True, f"it is ready after {time.time() - began:.0f} s")
            sample = (root / "opt/gos/appliance/starter/sample/input.json").read_bytes()
            done = client.post(
                "/api/v1/processes/order-intake/execute?wait=30", content=sample, headers={"Content-Type": "application/json"}
            ).json()
            expect(done["data"]["status"] == "succeeded", f"the sample is executed: {done['data'].get('error')}")
            expect(container.run(*health_check).returncode == 0, "its health check says that it is well")
            doctor = container.run("gos", "doctor")
            expect(doctor.returncode == 0, f"gos doctor finds nothing wrong:\n{doctor.stdout}")
            refused = container.run("touch", "/opt/gos/appliance/written")
            expect(refused.returncode != 0, f"its file system is read-only: {refused.stderr.strip()}")
        with container.started() as client:
            earlier = client.get(f"/api/v1/processes/order-intake/executions/{done['data']['execution_id']}").json()
            expect(earlier["data"]["status"] == "succeeded", "it starts again with what it has kept")
        expect(container.run(*health_check).returncode != 0, "its health check notices that it has ended")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default="", help="run this image; without, one is built of what is committed")
    image = parser.parse_args(arguments).image
    missing = [name for name in ("buildah", *(() if image else ("mmdebstrap",))) if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        sys.exit(f"run as root; missing: apt-get install --no-install-recommends {' '.join(missing)}" if missing else "run as root")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not image:
            build_base(folder)
            build_image(folder)
        volume = folder / "volume"
        volume.mkdir()
        check_image(image or NAME, volume)


if __name__ == "__main__":
    main()
