"""`gos restore --at MOMENT PLACE`: restore the appliance as it was at a second."""

import argparse
import sys
from functools import partial
from pathlib import Path

from appliance.app.parts import make_places
from appliance.backups import restoring
from appliance.backups.buckets import is_bucket
from appliance.backups.points import PointRequest
from appliance.cli.backup import describe, load_restored, operator_name
from appliance.cli.output import print_result
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import InvalidRequest

LATEST = "latest"
NOTICED_MS = 30_000  # an appliance notes at least every 10 s until when everything is shipped


def restore_point(args: argparse.Namespace, config: Config, passphrase: str | None) -> int:
    """Restore the moment of the arguments; 1 if contents that it names are missing."""
    if args.tenant or args.document or args.to or args.verify or args.all_revisions:
        raise InvalidRequest(
            "--at restores a whole appliance; leave out --tenant, --document, --to and --verify, restore into a folder of its own, "
            "and take out of that what you need"
        )
    moment = None if args.at == LATEST else clock.parse_rfc3339(args.at, pointer="/at")
    place = args.file if is_bucket(args.file) else str(Path(args.file).absolute())
    request = PointRequest(
        Path(place), passphrase, args.key, args.replace, by=operator_name(), config=config, place=place, moment=moment
    )
    done = restoring.restore_backup(partial(load_restored, args, config), make_places, request)
    contents = done.manifest["contents"]
    reached = f"The last change before {done.manifest['moment']} is of {done.manifest['made_at']}. {describe(done)}"
    print_result(
        args, reached, data=str(done.data), rows=done.rows, contents=contents["count"], made_at=done.manifest["made_at"],
        moment=done.manifest["moment"], complete_until=done.manifest["complete_until"], migrated=list(done.migrated),
        aside=str(done.previous_data) if done.previous_data else None, stayed=list(done.copied), missing=list(done.missing),
        damaged=contents["damaged"],
    )  # fmt: skip
    if clock.parse_rfc3339(done.manifest["complete_until"]) < clock.parse_rfc3339(done.manifest["moment"]) - NOTICED_MS:
        print(
            f"gos: nothing was shipped between {done.manifest['complete_until']} and {done.manifest['moment']}: changes of that "
            "time, if the appliance was running, are not in what was restored",
            file=sys.stderr,
        )
    for place in contents["damaged"]:
        print(f"gos: the content {place} is missing: it was missing or damaged when the points were shipped", file=sys.stderr)
    return 1 if contents["damaged"] else 0
