"""`gos backup rehearse`."""

import argparse
import json
from dataclasses import asdict

from appliance.app.parts import make_places
from appliance.backups.rehearsal import RehearsalRequest, rehearse
from appliance.cli.backup import passphrase_of
from appliance.cli.output import print_result
from appliance.core.config import Config
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence, pack

from .sources import open_source


def run_rehearse(args: argparse.Namespace) -> int:
    """Rehearse the restore of a backup; nothing of it stays, and the appliance of the data folder is not touched."""
    config: Config = args.load()
    key = args.key if args.key and args.key.is_file() else None
    try:
        request = RehearsalRequest(open_source(config, args.file), passphrase_of(args, config), key)
        done = rehearse(config, make_places, request)
    except ApplianceError as error:
        if args.json:  # the appliance, which runs this command too, shows it in the language of its reader
            message = error.message
            print(json.dumps({"problem": pack(message if isinstance(message, Sentence) else Sentence(message))}))
        raise
    seconds = (done.restore_ms + done.start_ms) / 1000
    summary = (
        f"{args.file} of {done.made_at} was restored and answered after {seconds:.1f} s "
        f"({done.restore_ms / 1000:.1f} s to restore, "
        f"{done.start_ms / 1000:.1f} s to start): {done.rows} rows as in the backup, {done.sampled} of {done.contents} contents "
        f"compared with their sha256, {done.trails} audit trails intact"
    )
    print_result(args, summary, **asdict(done))
    return 0
