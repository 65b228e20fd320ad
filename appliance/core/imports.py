"""Imports a library without the optional libraries that it would import, and that the appliance does not use through it."""

import sys
from importlib import import_module


def import_without(library: str, *optional: str) -> None:
    """Import `library` as if `optional` were not installed; those remain importable. Does nothing if it is already imported.

    A module that is None in `sys.modules` raises ModuleNotFoundError on import
    (https://docs.python.org/3/reference/import.html#the-module-cache).
    """
    absent = [name for name in optional if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # the types of typeshed know no None
    try:
        import_module(library)
    finally:
        for name in absent:
            del sys.modules[name]
