"""A bucket on a private S3 server (OpenStack Swift) with its own folder and loopback port, deleted afterwards."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import obstore

from appliance.blobs.s3 import open_bucket
from appliance.core.config.sections import Blobs as Settings

SERVER = Path(__file__).parents[2] / "plugins" / "files" / "tests" / "swift_server.py"
START_SECONDS = 60
USER, SECRET = "acme:ann", "sésame"


@contextmanager
def running_bucket() -> Iterator[Settings]:
    """The settings of an empty bucket `contents`."""
    folder = Path(tempfile.mkdtemp(prefix="gos-bucket-")).resolve()
    try:
        (folder / "swift").mkdir()
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        # Where only root may enter the checkout, the server's user could not read the program in it.
        command = ["/usr/bin/python3", shutil.copy(SERVER, folder), str(folder / "swift")]
        with (folder / "log").open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, **_as(folder))
        try:
            endpoint = f"http://127.0.0.1:{_port(process, folder)}"
            settings = Settings(
                store="s3", bucket="contents", endpoint=endpoint, region="eu-central-1", key_id=USER, secret_key=SECRET
            )
            _make_bucket(settings)
            yield settings
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as(folder: Path) -> dict[str, Any]:
    """The user it runs as: `nobody` when the tests run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": folder}


def _port(process: subprocess.Popen[bytes], folder: Path) -> str:
    until = time.monotonic() + START_SECONDS
    while not (folder / "swift" / "port").exists():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the server did not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.05)  # the port is in a file of another process, which announces it in no other way
    return (folder / "swift" / "port").read_text()


def _make_bucket(settings: Settings) -> None:
    """Creates the bucket by a signed raw request; the appliance itself never creates buckets."""
    address = obstore.sign(open_bucket(settings), "PUT", "", timedelta(minutes=5))
    httpx.put(address, timeout=60, trust_env=False).raise_for_status()
