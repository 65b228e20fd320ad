"""`gos sbom`: print the software bill of materials, in the JSON of CycloneDX 1.6."""

import argparse
import json
from typing import Any


def add_commands(commands: Any) -> None:
    sbom = commands.add_parser("sbom", help="print the software bill of materials (CycloneDX 1.6, JSON)")
    sbom.set_defaults(run=run_sbom)


def run_sbom(args: argparse.Namespace) -> int:
    from .document import make_document

    print(json.dumps(make_document(), ensure_ascii=False, indent=2))
    return 0
