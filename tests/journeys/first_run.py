"""An appliance as its administrator has it: made by the commands, served by a process of its own, seen from outside."""

import json
from pathlib import Path

from appliance.testing.remote import RemoteGos
from tests.architecture.page_commands import Block, Reader


def type_in(reader: Reader, script: str) -> None:
    """What somebody types on that machine; AssertionError with what is said when it fails."""
    reader.follow(Block(0, script, starts=False, unverified=""))


def first_login(reader: Reader) -> tuple[str, str]:
    """Login and password that the first run made."""
    first = _first_run(reader.home)
    return first["console_user"], first["console_password"]


def seen_from_outside(reader: Reader) -> RemoteGos:
    """The running appliance, with the key and the person of its first run."""
    first = _first_run(reader.home)
    return RemoteGos(url=first["base_url"], key=first["api_key"], logins={"owner": first_login(reader)})


def _first_run(home: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((home / "data" / "first-run.json").read_text("utf8"))
    return found
