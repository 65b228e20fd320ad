"""The settings of an appliance that is started to rehearse a restore, and must do nothing to the outside.

It has workers, mail, backups, copies of audit trails, telemetry and certificate orders off and reaches no other system, whatever
the backup's own configuration and the environment say: neither is read.
"""

import dataclasses
import json
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from appliance.core.config import Config, environment, environment_names, load_config
from appliance.core.config.master_key import VARIABLE

HOST = "127.0.0.1"
SHUTDOWN_SECONDS = 5
_HARMLESS = ("PATH", "LANG", "TMPDIR", "LD_LIBRARY_PATH")


def settings_of(config: Config, data: Path, port: int, database: str = "") -> dict[str, Any]:
    """The settings, by `section.name`; from `config` come only those about this machine."""
    return {
        "storage.data": str(data), "storage.database": database, "storage.writers": 1, "blobs.store": "local",
        "backup.to": "", "backup.rehearse_every": "",
        "backup.points_to": "",
        "server.host": HOST, "server.port": port, "server.tls": "off", "server.run_workers": False, "server.drain_seconds": 0,
        "server.shutdown_seconds": SHUTDOWN_SECONDS, "tls.http_port": 0, "egress.allow": ["none"], "mail.server": "",
        "audit.syslog": "", "audit.otlp": "",
        "otlp.endpoint": "", "acme.directory": "", "connectors.reload": False, "demo.order_system": False,
        "sandbox.runtimes": config.sandbox.runtimes, "sandbox.first_user": config.sandbox.first_user,
        "sandbox.processes": 1, "formats.processes": 1,
        **{f"master_key.{name}": value for name, value in dataclasses.asdict(config.master_key).items()},
    }  # fmt: skip


def isolated_config(config: Config, data: Path, port: int = 0) -> Config:
    """The configuration with these settings only."""
    return load_config(environment={}, flags=settings_of(config, data, port or 8080))


def write_config(settings: dict[str, Any], target: Path) -> None:
    """Write the settings as a configuration file; JSON is YAML."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = value
    target.write_text(json.dumps(sections, indent=1), "utf8")


def clean_environment(config: Config, database: str = "") -> dict[str, str]:
    """What a process may have of the environment: no settings and no credentials, but what leads to the master key, and to a
    database on a server."""
    names = (*_HARMLESS, *_names_for_key(config), *(_names_for_server() if database else ()))
    values = {name: environment(name) for name in names}
    return {name: value for name, value in values.items() if value is not None} | {"LC_ALL": "C.UTF-8"}


def _names_for_key(config: Config) -> Iterable[str]:
    """The variables that the source of the master key reads; a command may read any but settings of the appliance."""
    match config.master_key.source:
        case "environment":
            return (VARIABLE,)
        case "credential":
            return ("CREDENTIALS_DIRECTORY",)
        case "command":
            return environment_names()
    return ()


def _names_for_server() -> Iterable[str]:
    """The variables that the driver of a database server reads, and the folder of its password file."""
    return ("HOME", *(name for name in environment_names() if name.startswith("PG")))


def free_port() -> int:
    """A port of this machine that nothing listens on now."""
    with socket.socket() as trial:
        trial.bind((HOST, 0))
        return int(trial.getsockname()[1])


_BOOT = (
    "import sys; sys.path[:] = {path!r}; from appliance.core.confinement.confinement import die_with_parent; "
    "die_with_parent({parent}); import os; os.nice({nice}); from appliance.cli import main; sys.exit(main())"
)


def command_of(arguments: list[str], *, nice: int = 0) -> list[str]:
    """The command line that runs `gos` with these arguments in a process that ends when the thread that starts it does."""
    boot = _BOOT.format(path=[each for each in sys.path if each], parent=os.getpid(), nice=nice)
    return [sys.executable, "-c", boot, *arguments]
