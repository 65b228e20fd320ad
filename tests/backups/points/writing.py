"""A process that writes rows and contents while their points are shipped, until it is killed: `python -m …writing DATA PLACE`.

It prints a line for each committed row, `NUMBER TIME`, and `ready` once the first base is complete.
"""

import sys
from pathlib import Path

from appliance.core import clock
from appliance.core.database import db
from appliance.tenants import service
from tests.backups.points.worlds import point_world, shipping


def write(number: int, content: bytes) -> None:
    db.execute("INSERT INTO task (queue, data, priority) VALUES ('written', ?, ?)", (content, number))


def main(data: str, place: str) -> None:
    world = point_world(Path(data), place)
    with world.opened():
        world.fill()
        scope = service.system_scope("initech")
        with shipping(world):
            print("ready", flush=True)
            number = 0
            while True:
                number += 1
                world.blobs.put(scope, b"content %d " % number * 500)
                db.write(lambda number=number: write(number, b"%d" % number * 400))  # type: ignore[misc]
                print(number, clock.now_ms(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
