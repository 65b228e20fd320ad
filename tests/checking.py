"""One type check for all tenants of tests: dozens of them are given the same solution, and each check takes a second."""

import hashlib
from functools import cached_property

from appliance.sandbox import TypeCheck

PROPER = TypeCheck.__dict__["digest"]


def check_types_once() -> None:
    """From now on in this process."""
    shared = cached_property(lambda asked: hashlib.sha256(asked.wire).hexdigest())
    shared.__set_name__(TypeCheck, "digest")
    TypeCheck.digest = shared  # type: ignore[assignment]
