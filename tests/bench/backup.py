"""How long writers wait while a backup is made of a large database under load.

.venv/bin/python -m tests.bench.backup
"""

import secrets
import tempfile
import threading
from functools import partial
from pathlib import Path

from appliance.app.parts import make_places
from appliance.app.store import open_store
from appliance.backups.creation import make_backup
from appliance.core import clock
from appliance.core.config import Config, load_config
from appliance.core.database import db
from appliance.tenants import service

ROWS, TEXT_BYTES, QUIET_SECONDS = 100_000, 1_000, 5.0


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gos-bench-") as folder:
        config = load_config(environment={}, flags={"storage.data": f"{folder}/data"})
        open_store(config)
        try:
            measure(Path(folder), config)
        finally:
            db.close_database()


def insert_all(numbers: range) -> None:
    for number in numbers:
        insert(number, TEXT_BYTES)


def measure(folder: Path, config: Config) -> None:
    """Writers go on without a pause; the longest of their commits is the stall."""
    service.create_tenant("alpha", "Alpha")
    for start in range(0, ROWS, 1000):
        db.write(partial(insert_all, range(start, start + 1000)))
    waits: list[tuple[float, float]] = []
    stopping = threading.Event()

    def load() -> None:
        while not stopping.is_set():
            began = clock.monotonic()
            db.write(lambda: insert(0, 100))
            waits.append((began, clock.monotonic() - began))

    thread = threading.Thread(target=load)
    thread.start()
    stopping.wait(QUIET_SECONDS)
    began = clock.monotonic()
    backup = make_backup(config, make_places(config, "ins_bench"), folder / "whole.gosb", "a passphrase of a bench")
    took = clock.monotonic() - began
    stopping.set()
    thread.join()
    quiet = [wait for at, wait in waits if at < began]
    busy = [wait for at, wait in waits if at >= began]
    print(f"{backup.rows} rows, {backup.size >> 20} MiB, made in {took:.1f} s")
    for name, times in (("quiet", quiet), ("backup", busy)):
        times.sort()
        print(f"{name}: {len(times)} commits, p50 {times[len(times) // 2] * 1000:.1f} ms, longest {times[-1] * 1000:.1f} ms")


def insert(at: int, size: int) -> int:
    return db.execute(
        "INSERT INTO log_line (tenant_id, at, level, source, message, fields) VALUES ('alpha', ?, 20, 'bench', ?, '{}')",
        (at, secrets.token_hex(size // 2)),
    )


if __name__ == "__main__":
    main()
