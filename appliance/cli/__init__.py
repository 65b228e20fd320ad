"""The `gos` command, with one module per noun; each registers its commands, whose functions return the exit code (0, 1, 2)."""

import argparse
import sys
import tempfile
import traceback
from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from appliance import __version__
from appliance.core import logs
from appliance.core.config import Config, environment, load_config
from appliance.core.database import DatabaseError
from appliance.core.errors import ApplianceError

from .output import print_error

# Each command and the module that registers it; only the module of the command that runs is loaded.
MODULES: Mapping[str, str] = {
    "apply": "applying",
    "audit": "audit",
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
    "master-key": "master_key",
    "migrate": "config",
    "migrate-to": "moving",
    "person": "person",
    "pull": "solution",
    "replay": "replay",
    "restore": "backup",
    "sbom": "sbom",
    "scim": "people",
    "secret": "tenant",
    "serve": "serve",
    "service-account": "tenants.service_accounts",
    "tenant": "tenant",
    "test": "testing",
    "translation": "translation",
    "upgrade": "upgrading",
    "user": "people",
    "worker": "serve",
}
# Commands of two words beside those of one: `gos backup FILE` and `gos backup list`.
TWO_WORDS = {"backup": ("download", "list", "rehearse")}


class Parser(argparse.ArgumentParser):
    """A parser that reports usage errors in one sentence with the next step, and exits with code 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser(argv: list[str]) -> argparse.ArgumentParser:
    """A parser for the command in `argv`; for every command if there is none, to print the help or the error."""
    common = Parser(prog="gos", add_help=False, allow_abbrev=False)
    common.add_argument("--config", type=Path, default=environment("GOS_CONFIG"), help="config.yaml (default: <data>/config.yaml)")
    common.add_argument("--data", help="data folder (default: GOS_DATA or ./data)")
    first = next(iter(common.parse_known_args(argv)[1]), "")
    noun = first.partition(" ")[0]
    modules = {MODULES[noun]} if noun in MODULES else {*MODULES.values()}
    parser = Parser(prog="gos", description="The Governed Operations Service.", parents=[common])
    parser.add_argument("--version", action="version", version=f"gos {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for module in () if first == "--version" else sorted(modules):
        import_module(f".{module}", __name__).add_commands(commands)
    return parser


def join_words(argv: list[str]) -> list[str]:
    """The arguments, with the two words of a command as one."""
    for at, (noun, verb) in enumerate(pairwise(argv)):
        if verb in TWO_WORDS.get(noun, ()) and not (at and argv[at - 1] in ("--config", "--data")):
            return [*argv[:at], f"{noun} {verb}", *argv[at + 2 :]]
        if noun in MODULES:
            break
    return argv


def read_config(args: argparse.Namespace) -> Config:
    """Load the configuration from --config or from config.yaml in the data folder, overridden by environment and flags."""
    flags = {"storage.data": args.data, **getattr(args, "flags", {})}
    file = Path(args.config) if args.config else None
    if file is None:
        data = Path(args.data or environment("GOS_DATA") or Config().storage.data)
        file = data / "config.yaml" if (data / "config.yaml").is_file() else None
    return load_config(file, flags=flags)


def main(argv: list[str] | None = None) -> int:
    """Run one command; errors are reported as a sentence on standard error, never as a traceback."""
    arguments = join_words(sys.argv[1:] if argv is None else argv)
    args = make_parser(arguments).parse_args(arguments)
    printed: set[str] = set()

    def load() -> Config:
        """Load the configuration; each of its warnings is printed once, however often a command loads it."""
        config = read_config(args)
        for each in set(config.warnings) - printed:
            print(f"gos: warning: {each}", file=sys.stderr, flush=True)
            printed.add(each)
        return config

    try:
        args.load = load
        return int(args.run(args) or 0)
    except ApplianceError as error:
        print_error(error)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # The reader of our output has exited; Python would complain about that at exit.
        return 1
    except OSError as error:
        print(
            f"gos: {error.filename or 'the system'}: {error.strerror or error}; check the path and its permissions", file=sys.stderr
        )
        return 1
    except DatabaseError as error:
        print(
            f"gos: the database cannot be used ({error}); restore it from a backup, or choose another folder with --data",
            file=sys.stderr,
        )
        return 1
    except Exception as error:  # noqa: BLE001  the last resort: the user gets a sentence, and a file gets the traceback
        print(
            f"gos: this is a bug ({type(error).__name__}); please report it with the file {_write_report(error)}", file=sys.stderr
        )
        return 1


def _write_report(error: Exception) -> str:
    """Write the error's traceback to a new file, with secrets redacted, and return its name."""
    with tempfile.NamedTemporaryFile("w", prefix="gos-bug-", suffix=".txt", delete=False) as file:
        file.write(logs.redact("".join(traceback.format_exception(error))))
    return file.name
