"""A private PostgreSQL server for tests: own folder, own socket, no network, gone afterwards."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import psycopg

from appliance.core.scope import APPLIANCE

_SIZES = "SELECT relname, pg_relation_size(oid) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
SAFE = ("listen_addresses=''", "max_connections=100", "shared_buffers=32MB")
FASTER_THAN_SAFE = ("fsync=off", "full_page_writes=off", *SAFE)


def server_programs() -> Path:
    """The folder of the newest installed server: Debian keeps it off the path."""
    programs = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if programs:
        return max(programs, key=lambda path: int(path.parent.parent.name)).parent
    initdb = shutil.which("initdb")
    if initdb is None:
        raise RuntimeError(
            "these tests need a PostgreSQL server; bash packaging/test.sh installs it, or: apt-get install postgresql"
        )
    return Path(initdb).resolve().parent


class Cluster:
    """A running server; `make_database` answers URLs."""

    def __init__(self, folder: Path, settings: Sequence[str] = FASTER_THAN_SAFE) -> None:
        self.folder = folder
        self._settings = settings
        self._programs = server_programs()
        self._count = 0
        self._emptied = ""
        self._schema: set[str] = set()
        initdb: list[str | Path] = [
            self._programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "gos",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        ]
        subprocess.run(initdb, check=True, capture_output=True, **self.owner())

    def owner(self) -> dict[str, Any]:
        """Options of `subprocess.run` for its programs: the server refuses to run as root."""
        if os.geteuid() != 0:
            return {}
        nobody = pwd.getpwnam("nobody")
        os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": self.folder}

    def url(self, name: str) -> str:
        return f"postgresql://gos@/{name}?host={self.folder}"

    def start(self) -> None:
        settings = " ".join(f"-c {setting}" for setting in (*self._settings, f"unix_socket_directories={self.folder}"))
        self._control("start", "-w", "-l", self.folder / "log", "-o", settings)

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """`fast` is in order, `immediate` as if it had crashed; both end every session."""
        self._control("stop", "-w", "-m", mode)

    def kill(self) -> None:
        """kill -9 of the server and of all its processes."""
        file = self.folder / "data" / "postmaster.pid"
        main = int(file.read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for process in (main, *map(int, children)):
            with suppress(ProcessLookupError):  # ended meanwhile
                os.kill(process, signal.SIGKILL)
        for process in (main, *map(int, children)):
            while _is_alive(process):
                time.sleep(0.005)  # between two looks, until the kernel has ended it
        for each in (file, *self.folder.glob(".s.PGSQL.*.lock")):
            each.unlink()  # where nobody collects the dead, the next server would take them for the living

    def is_running(self) -> bool:
        """Whether the server has not ended by itself."""
        command: list[str | Path] = [self._programs / "pg_ctl", "status", "-D", self.folder / "data"]
        return subprocess.run(command, capture_output=True, check=False, **self.owner()).returncode == 0

    def _control(self, verb: str, *options: str | Path) -> None:
        command = [self._programs / "pg_ctl", verb, "-D", self.folder / "data", *options]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, **self.owner())
        if done.returncode != 0:
            raise RuntimeError(f"pg_ctl {verb} failed: {(self.folder / 'log').read_text()[-2000:]}")

    def execute(self, sql: str, name: str = "postgres") -> list[tuple[Any, ...]]:
        """What another program would see right now."""
        with psycopg.connect(self.url(name), autocommit=True) as other:
            cursor = other.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def make_database(self, options: str = "") -> str:
        """The URL of a new, empty database."""
        self._count += 1
        self.execute(f"CREATE DATABASE test_{self._count} TEMPLATE template0 {options}")
        return self.url(f"test_{self._count}")

    def copy_database(self, url: str) -> str:
        """The URL of a new database with the schema and the rows of another, which nobody uses meanwhile."""
        self._count += 1
        name = url.removeprefix("postgresql://gos@/").partition("?")[0]
        self.execute(f"CREATE DATABASE test_{self._count} TEMPLATE {name}")
        return self.url(f"test_{self._count}")

    def drop_database(self, url: str) -> None:
        """Delete a database, and end the sessions that use it."""
        self.execute(f"DROP DATABASE {url.removeprefix('postgresql://gos@/').partition('?')[0]} WITH (FORCE)")

    def emptied(self) -> str:
        """The URL of the one database that has this release's schema, with no rows: much quicker than a new one."""
        if not self._schema:
            self._emptied = self.make_database()
            program = (
                "import sys; from appliance import migrations; from appliance.core.database import db; "
                "db.open_database(sys.argv[1]); migrations.migrate()"
            )
            subprocess.run([sys.executable, "-c", program, self._emptied], check=True)
        with psycopg.connect(self._emptied, autocommit=True) as other:
            sizes: dict[str, int] = dict(other.execute(_SIZES).fetchall())
            self._schema = self._schema or set(sizes)
            commands = [f'DROP TABLE "{table}" CASCADE' for table in sizes.keys() - self._schema]
            written = {table for table in self._schema - {"migration"} if sizes[table]}
            spared = {"tenant": f" WHERE id <> '{APPLIANCE}'"}  # inserted by a migration
            commands += [f'DELETE FROM "{table}"{spared.get(table, "")}' for table in written]  # noqa: S608  # names of our own
            commands += [
                f"ALTER SEQUENCE {row[0]} RESTART"
                for row in other.execute("SELECT sequencename FROM pg_sequences WHERE last_value IS NOT NULL")
            ]
            other.execute("; ".join(["SET session_replication_role = replica", *commands]).encode())
        return self._emptied


def _is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended may still wait for its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def running_cluster(settings: Sequence[str] = FASTER_THAN_SAFE) -> Iterator[Cluster]:
    """Not in pytest's folder: another user must reach it."""
    folder = Path(tempfile.mkdtemp(prefix="gos-pg-"))
    try:
        cluster = Cluster(folder, settings)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder)
