"""Schemas are kept in a test process: hundreds of appliances load the same connectors, which have more than the product keeps."""

from functools import lru_cache

from appliance.core.json_schema import schema

PROPER = schema._compile_text
_MOST = 2048


def compile_once() -> None:
    """From now on in this process."""
    schema._compile_text = lru_cache(maxsize=_MOST)(PROPER.__wrapped__)
