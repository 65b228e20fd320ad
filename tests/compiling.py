"""Connectors are judged and their schemas compiled once in a test process: hundreds of appliances of its tests load the same.

The product keeps fewer schemas than the connectors of the house have.
"""

from functools import lru_cache

from appliance.connectors import registry
from appliance.core.json_schema import schema

COMPILE = schema._compile_text
CHECK = registry.check_declaration
_MOST = 2048


def compile_once() -> None:
    """From now on in this process."""
    schema._compile_text = lru_cache(maxsize=_MOST)(COMPILE.__wrapped__)
    good: set[tuple[type, str]] = set()  # a connector that is loaded anew is another class

    def check(installed: registry.Installed, entry_name: str) -> None:
        if (installed.connector, entry_name) not in good:
            CHECK(installed, entry_name)
            good.add((installed.connector, entry_name))

    registry.check_declaration = check
