"""The `gos` command: one module per noun; each registers its commands and answers an exit code (0, 1, 2)."""

import argparse
import sys
import tempfile
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from peewee import DatabaseError

from appliance import __version__
from appliance.core import logs
from appliance.core.config import Config, environment, load_config
from appliance.core.errors import ApplianceError

from .output import tell_error

# Each command and the module that registers it; only the module of the command at hand is loaded.
MODULES: Mapping[str, str] = {
    "apply": "applying",
    "backup": "backup",
    "check": "solution",
    "config": "config",
    "connector": "connector",
    "deploy": "deploying",
    "doctor": "doctor",
    "domain": "domains",
    "execute": "solution",
    "init": "setup",
    "key": "keys",
    "logs": "solution",
    "migrate": "config",
    "pull": "solution",
    "replay": "replay",
    "restore": "backup",
    "secret": "tenant",
    "serve": "serve",
    "tenant": "tenant",
    "test": "testing",
    "translation": "translation",
    "user": "people",
    "worker": "serve",
}


class Usage(argparse.ArgumentParser):
    """Errors in one sentence with the next step, exit code 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser(argv: list[str]) -> argparse.ArgumentParser:
    """The command that `argv` names; every command of this release where it names none, for the help and the error."""
    common = Usage(prog="gos", add_help=False, allow_abbrev=False)
    common.add_argument("--config", type=Path, default=environment("GOS_CONFIG"), help="config.yaml (default: <data>/config.yaml)")
    common.add_argument("--data", help="data folder (default: GOS_DATA or ./data)")
    first = next(iter(common.parse_known_args(argv)[1]), "")
    named = {MODULES[first]} if first in MODULES else {*MODULES.values()}
    parser = Usage(prog="gos", description="The Governed Operations Service.", parents=[common])
    parser.add_argument("--version", action="version", version=f"gos {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Usage)
    for module in () if first == "--version" else sorted(named):
        import_module(f".{module}", __name__).add_commands(commands)
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
    given = sys.argv[1:] if argv is None else argv
    args = make_parser(given).parse_args(given)
    told: set[str] = set()

    def load() -> Config:
        """The configuration; what it warns of is said once, however often a command asks."""
        config = read_config(args)
        for each in set(config.warnings) - told:
            print(f"gos: warning: {each}", file=sys.stderr, flush=True)
            told.add(each)
        return config

    try:
        args.load = load
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
