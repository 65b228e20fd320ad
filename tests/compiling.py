"""Connectors are checked and their schemas compiled once per test process: hundreds of its appliances load the same ones.

The product caches fewer schemas than the bundled connectors have.
"""

from functools import lru_cache

from appliance.connectors import registry
from appliance.core.json_schema import schema

ORIGINAL_COMPILE = schema._compile_text
ORIGINAL_CHECK = registry.check_declaration
_MOST = 2048


def compile_once() -> None:
    """Cache compiled schemas and checked connectors in this process."""
    schema._compile_text = lru_cache(maxsize=_MOST)(ORIGINAL_COMPILE.__wrapped__)
    checked: set[tuple[type, str]] = set()  # a connector that is loaded anew is another class

    def check(installed: registry.Installed, entry_name: str) -> None:
        if (installed.connector, entry_name) not in checked:
            ORIGINAL_CHECK(installed, entry_name)
            checked.add((installed.connector, entry_name))

    registry.check_declaration = check
