"""Real PostgreSQL and MariaDB servers with TLS and passwords, each in its own folder on a free loopback port."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.connectors.testing import free_port, write_certificate

PASSWORD = "sésame-'\"%s"
START_SECONDS = 60


@dataclass(frozen=True)
class Server:
    """A running server: valid `settings`, the `ca` that issued its certificate, and `admin`, which runs SQL as a second client."""

    settings: dict[str, Any]
    ca: str
    admin: Callable[[str], str]
    stop: Callable[[], None]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    with _folder() as folder, _postgresql(folder) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    with _folder() as folder, _mariadb(folder) as server:
        yield server


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder with a short path, because sockets are created in it."""
    folder = Path(tempfile.mkdtemp(prefix="gos-sql-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged(folder: Path) -> dict[str, Any]:
    """Process options to run as an unprivileged user, because these servers refuse to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": folder}


def _run(command: Sequence[str | Path], stdin: str = "", **options: Any) -> str:
    done = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr[-2000:]}")
    return str(done.stdout).strip()


def _wait(process: subprocess.Popen[bytes], log: Path, is_up: Callable[[], bool]) -> None:
    until = time.monotonic() + START_SECONDS
    while not is_up():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)


@contextmanager
def _run_server(
    command: Sequence[str | Path], folder: Path, is_up: Callable[[], bool], **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options)
    try:
        _wait(process, log, is_up)
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def _postgresql(folder: Path) -> Iterator[Server]:
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    port = free_port()
    ca = write_certificate(folder)
    (folder / "password").write_text(PASSWORD)
    options = _unprivileged(folder)
    initdb: list[str | Path] = [
        programs / "initdb", "-D", folder / "data", "-U", "gos", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "-N",
    ]  # fmt: skip
    _run([*initdb, "--pwfile", folder / "password"], **options)
    parameters = {
        "port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "fsync": "off", "ssl": "on",
        "ssl_cert_file": folder / "certificate", "ssl_key_file": folder / "key",
    }  # fmt: skip
    command: list[str | Path] = [
        programs / "postgres",
        "-D",
        folder / "data",
        *(part for name, value in parameters.items() for part in ("-c", f"{name}={value}")),
    ]
    psql: list[str | Path] = [programs / "psql", "-h", "127.0.0.1", "-p", str(port), "-U", "gos", "-d", "postgres"]
    environment = {**os.environ, "PGPASSWORD": PASSWORD}

    def admin(sql: str) -> str:
        return _run([*psql, "-AtX", "-v", "ON_ERROR_STOP=1", "-f", "-"], sql, env=environment)

    def is_up() -> bool:
        ready: list[str | Path] = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        return subprocess.run(ready, check=False).returncode == 0

    with _run_server(command, folder, is_up, **options) as process:
        settings = {"host": "127.0.0.1", "port": port, "database": "postgres", "user": "gos", "password": PASSWORD, "ca": ca}
        yield Server(settings, ca, admin, process.kill)


@contextmanager
def _mariadb(folder: Path) -> Iterator[Server]:
    port = free_port()
    ca = write_certificate(folder)
    (folder / "data").mkdir()
    options = _unprivileged(folder)
    install = shutil.which("mariadb-install-db") or "/usr/bin/mariadb-install-db"
    _run(
        [install, "--no-defaults", f"--datadir={folder}/data", "--auth-root-authentication-method=normal", "--skip-test-db"],
        **options,
    )
    command = [
        shutil.which("mariadbd") or "/usr/sbin/mariadbd", "--no-defaults", f"--datadir={folder}/data", f"--port={port}",
        "--bind-address=127.0.0.1", f"--socket={folder}/s", f"--pid-file={folder}/pid", "--skip-log-bin",
        "--innodb-flush-log-at-trx-commit=0",
        f"--ssl-cert={folder}/certificate", f"--ssl-key={folder}/key", "--innodb-buffer-pool-size=32M", "--skip-name-resolve",
    ]  # fmt: skip
    client = [
        "mariadb",
        "--no-defaults",
        f"--socket={folder}/s",
        "-u",
        "root",
        "--batch",
        "--skip-column-names",
        "--default-character-set=utf8mb4",
    ]

    def admin(sql: str) -> str:
        return _run([*client, "gos"], sql)

    def is_up() -> bool:
        return subprocess.run([*client, "-e", "SELECT 1"], check=False, capture_output=True).returncode == 0

    with _run_server(command, folder, is_up, **options) as process:
        quoted = PASSWORD.replace("'", "''")
        _run(
            client,
            f"CREATE DATABASE gos CHARACTER SET utf8mb4; CREATE USER gos IDENTIFIED BY '{quoted}'; GRANT ALL ON gos.* TO gos;",
        )
        settings = {"host": "127.0.0.1", "port": port, "database": "gos", "user": "gos", "password": PASSWORD, "ca": ca}
        yield Server(settings, ca, admin, process.kill)
