"""`python sealing_process.py DATA`: a process that seals the values of a rotation with the current key, until it is killed."""

import sys
from pathlib import Path

from appliance.master_key import Resealer, resealing
from tests.master_key.world import configure, opened

resealing.BATCH_ROWS = 5
store = resealing._store


def announced(*args: object) -> None:
    """Store a batch, and say so once it is; the reader may kill this process at any time."""
    store(*args)  # type: ignore[arg-type]
    print("batch", flush=True)


resealing._store = announced  # type: ignore[assignment]
with opened(configure(Path(sys.argv[1]))) as sealer:
    Resealer(sealer).work()
