"""However many threads read, SQLite's caches together stay within a bound, so that the memory of a server levels off."""

import subprocess
import sys
from pathlib import Path

from appliance.core.database import db

THREADS, MOST_MB = 30, 50
"""Caches of 2 MB each would be 60 MB, and with what else threads need, some 70."""
READ = """
import sys, threading
from pathlib import Path
from appliance.core.database import db

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / (1 << 20)

def read():
    db.rows("SELECT sum(length(content)) FROM big")
    both.wait()
    both.wait()

db.open_database(sys.argv[1])
before, both = resident_mb(), threading.Barrier(int(sys.argv[2]) + 1)
threads = [threading.Thread(target=read) for _ in range(int(sys.argv[2]))]
for each in threads:
    each.start()
both.wait()
print(resident_mb() - before)
both.wait()
for each in threads:
    each.join()
"""


def test_many_readers_take_little_memory(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'big.db'}"
    db.open_database(url)

    def fill() -> None:
        db.execute("CREATE TABLE big (number INTEGER PRIMARY KEY, content BLOB)")
        numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000)"
        db.execute(numbers + " INSERT INTO big SELECT i, randomblob(2000) FROM n")  # noqa: S608

    try:
        db.write(fill)
    finally:
        db.close_database()
    done = subprocess.run([sys.executable, "-c", READ, url, str(THREADS)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < MOST_MB
