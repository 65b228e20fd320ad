"""Runs a real trytond with SQLite in a temporary folder, on a free loopback port."""

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from appliance.connectors.testing import free_port

PASSWORD = "sésame-'\"%s"
START_SECONDS = 90
MODULES = ("ir", "res", "country", "party")
CACHE = Path(__file__).resolve().parents[3] / ".cache" / "tryton"


@pytest.fixture(scope="session")
def tryton() -> Iterator[dict[str, Any]]:
    """The settings of a running server with the module party."""
    programs = Path(sys.executable).parent
    with tempfile.TemporaryDirectory(prefix="gos-tryton-") as path:
        folder = Path(path)
        port = free_port()
        (folder / "password").write_text(PASSWORD)
        (folder / "conf").write_text(f"[database]\nuri = sqlite://\npath = {folder}\n[web]\nlisten = 127.0.0.1:{port}\n")
        # With this library, which another package brings, Tryton asks the name servers whether the administrator's address exists.
        (folder / "email_validator.py").write_text("raise ImportError")
        environment = {
            **os.environ, "TRYTONPASSFILE": str(folder / "password"), "LC_ALL": "C.UTF-8", "PYTHONPATH": str(folder),
        }  # fmt: skip
        shared = ["-c", str(folder / "conf"), "-d", "gos"]
        copy_database(folder, [str(programs / "trytond-admin"), *shared], environment)
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen([str(programs / "trytond"), *shared], stdout=log, stderr=log, env=environment)
        try:
            wait_for(server, port, folder / "log")
            yield {"base_url": f"http://127.0.0.1:{port}", "database": "gos", "user": "admin", "password": PASSWORD}
        finally:
            server.kill()
            server.wait()


def copy_database(folder: Path, admin: list[str], environment: Mapping[str, str]) -> None:
    """Copy a database with the modules and the password, which is created once for each release of Tryton (5 s)."""
    packages = [version(name) for name in ("trytond", "trytond_country", "trytond_party")]
    cached = CACHE / f"{hashlib.sha256(repr((packages, MODULES, PASSWORD)).encode()).hexdigest()[:16]}.sqlite"
    database = folder / "gos.sqlite"
    if not cached.exists():
        database.touch()
        make = [*admin, "-u", *MODULES, "--email", "a@example.com"]
        subprocess.run(make, check=True, capture_output=True, env=environment, timeout=START_SECONDS)
        cached.parent.mkdir(parents=True, exist_ok=True)
        partial = cached.with_suffix(f".{os.getpid()}")
        shutil.copyfile(database, partial)
        partial.rename(cached)
    shutil.copyfile(cached, database)


def wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError as error:
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"trytond did not start: {log.read_text()[-2000:]}") from error
        time.sleep(0.05)  # a foreign program says nowhere that it listens, so its port is asked again
