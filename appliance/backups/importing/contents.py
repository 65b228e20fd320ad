"""Stores the contents of an unpacked export."""

import secrets
from functools import partial
from pathlib import Path

from appliance.backups.problems import BackupInvalid, JobControl
from appliance.backups.schema_checks import SHA256
from appliance.backups.snapshots import open_snapshot
from appliance.blobs import Places


def store_contents(places: Places, database: Path, folder: Path, tenant_id: str, course: JobControl) -> dict[str, str]:
    """Moves the contents to the store before their rows; if the import fails, garbage collection removes them.

    Returns new places by old ones, also for missing contents, because the places in the file are not trusted.
    """
    new_places = {}
    with open_snapshot(database) as file:
        rows = file.execute("SELECT sha256, place FROM blob").fetchall()
        for number, (sha256, place) in enumerate(rows):
            course.refuse_stopping()
            course.report("contents", number, len(rows))
            if not SHA256.fullmatch(sha256):
                raise BackupInvalid("the export has contents with invalid names; do not use this file")
            path, new_places[place] = folder / sha256, f"{tenant_id}/{sha256[:2]}/{sha256}.{secrets.token_hex(6)}"
            if path.is_file():
                receiver = places.receiver()
                with path.open("rb") as source:
                    for piece in iter(partial(source.read, 1 << 20), b""):
                        receiver.write(piece)
                path.unlink()  # so that a large export does not need the space twice
                places.adopt(receiver.finish().path, new_places[place])
    return new_places
