"""The `gos` command: one module per noun; each registers its commands and answers an exit code (0, 1, 2)."""

import argparse
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType

from peewee import DatabaseError

from appliance import __version__
from appliance.core import logs
from appliance.core.config import Config, environment, load_config
from appliance.core.errors import ApplianceError

from . import (
    applying,
    backup,
    config,
    connector,
    deploying,
    doctor,
    domains,
    keys,
    people,
    replay,
    serve,
    setup,
    solution,
    tenant,
    testing,
)
from .output import tell_error

NOUNS: tuple[ModuleType, ...] = (
    serve,
    setup,
    config,
    doctor,
    tenant,
    people,
    keys,
    applying,
    deploying,
    domains,
    solution,
    testing,
    replay,
    backup,
    connector,
)


class Usage(argparse.ArgumentParser):
    """Errors in one sentence with the next step, exit code 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """Every command of this release."""
    parser = Usage(prog="gos", description="The Governed Operations Service.")
    parser.add_argument("--version", action="version", version=f"gos {__version__}")
    parser.add_argument("--config", type=Path, default=environment("GOS_CONFIG"), help="config.yaml (default: <data>/config.yaml)")
    parser.add_argument("--data", help="data folder (default: GOS_DATA or ./data)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Usage)
    for noun in NOUNS:
        noun.add_commands(commands)
    return parser


def read_config(args: argparse.Namespace) -> Config:
    """Configuration of the named file, or of config.yaml in the data folder, overridden by environment and flags."""
    flags = {"storage.data": args.data, **getattr(args, "flags", {})}
    file = Path(args.config) if args.config else None
    if file is None:
        data = Path(args.data or environment("GOS_DATA") or Config().storage.data)
        file = data / "config.yaml" if (data / "config.yaml").is_file() else None
    return load_config(file, flags=flags)


def main(argv: list[str] | None = None) -> int:
    """Run one command; a coded error is a sentence on standard error, never a traceback."""
    args = make_parser().parse_args(argv)
    try:
        args.load = lambda: read_config(args)
        return int(args.run(args) or 0)
    except ApplianceError as error:
        tell_error(error)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has gone; Python would complain about that at exit
        return 1
    except OSError as error:
        print(f"gos: {error.filename or 'the system'}: {error.strerror or error}; check the path and its rights", file=sys.stderr)
        return 1
    except DatabaseError as error:
        print(
            f"gos: the database cannot be used ({error}); restore it from a backup, or name another folder with --data",
            file=sys.stderr,
        )
        return 1
    except Exception as error:  # noqa: BLE001  the last resort: a person gets a sentence, the rest goes into a file
        print(f"gos: this is a bug ({type(error).__name__}); {_keep(error)} helps whoever mends it", file=sys.stderr)
        return 1


def _keep(error: Exception) -> str:
    """The name of a new file with everything about the error."""
    with tempfile.NamedTemporaryFile("w", prefix="gos-bug-", suffix=".txt", delete=False) as file:
        file.write(logs.redact("".join(traceback.format_exception(error))))
    return file.name
