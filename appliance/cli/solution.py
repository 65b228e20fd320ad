"""Solution commands."""

from typing import Any


def add_commands(commands: Any) -> None:
    pass
