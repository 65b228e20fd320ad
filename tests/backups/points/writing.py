"""A process that writes rows and contents while their points are shipped, until it is killed: `-m …writing DATA PLACE [often]`.

With `often` it ships and merges many times a second.  It prints a line for each committed row, `NUMBER TIME`, and `ready` once the
first base is complete.
"""

import sys
from pathlib import Path

from appliance.backups.points import merging
from appliance.backups.points import shipping as shipping_module
from appliance.core import clock
from appliance.core.database import db
from appliance.tenants import service
from tests.backups.points.worlds import point_world, shipping


def write(number: int, content: bytes) -> None:
    db.execute("INSERT INTO task (queue, data, priority) VALUES ('written', ?, ?)", (content, number))


def main(data: str, place: str, pace: str = "") -> None:
    if pace == "often":
        shipping_module.LOOK_SECONDS, shipping_module.FOLDER_SECONDS, merging.FANOUT = 0.01, 0.01, 3
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
