"""An appliance as an administrator gets it: set up by the commands, served by its own process, used over the network."""

import json
from pathlib import Path

from appliance.testing.remote import RemoteGos
from tests.architecture.page_commands import Block, Reader

OWN_PASSWORD = "seven green bottles hum quietly"


def run_script(reader: Reader, script: str) -> None:
    """Run a shell script on the machine; AssertionError with its output when it fails."""
    reader.follow(Block(0, script, starts=False, unverified=""))


def get_first_login(reader: Reader) -> tuple[str, str]:
    """Login and temporary password that the first run created."""
    first = _load_first_run(reader.home)
    return first["console_user"], first["console_password"]


def set_own_password(reader: Reader) -> None:
    """Give the account of the first run an own password, as an administrator does who does not want to choose it in the console."""
    login = _load_first_run(reader.home)["console_user"]
    run_script(reader, f"echo '{OWN_PASSWORD}' | .venv/bin/gos user password --lasting {login}")


def connect_client(reader: Reader) -> RemoteGos:
    """A client of the running appliance, with the key of its first run and the account with its own password."""
    first = _load_first_run(reader.home)
    return RemoteGos(url=first["base_url"], key=first["api_key"], logins={"owner": (first["console_user"], OWN_PASSWORD)})


def _load_first_run(home: Path) -> dict[str, str]:
    state: dict[str, str] = json.loads((home / "data" / "first-run.json").read_text("utf8"))
    return state
