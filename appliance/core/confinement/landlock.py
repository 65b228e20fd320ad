"""Landlock for a child process that is ready: from then on no path, no port and no other process is in its reach.

A second wall behind the filter of system calls. Layout and bits: Linux UAPI linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import struct

CREATE_RULESET, RESTRICT_SELF = 444, 446
ASK_VERSION = 1
# How many rights on files the kernel knows, by the version that brought them; version 4 brought ports, 6 scopes.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_PORTS, _SCOPES = 4, 6
_BIND_AND_CONNECT, _ABSTRACT_SOCKETS_AND_SIGNALS = 3, 3


def known_version() -> int:
    """The version of Landlock that this kernel offers; 0 when it offers none."""
    return max(0, int(_call(CREATE_RULESET, None, 0, ASK_VERSION)))


def reach_nothing() -> int:
    """Take every path and port from this thread and those it makes; answers the version used, 0 where there is none."""
    version = known_version()
    if not version:
        return 0
    handled = [(1 << _FILE_RIGHTS[min(version, max(_FILE_RIGHTS))]) - 1]
    if version >= _PORTS:
        handled.append(_BIND_AND_CONNECT)
    if version >= _SCOPES:
        handled.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    # No rule follows: what is handled and not allowed by a rule is denied.
    ruleset = int(_call(CREATE_RULESET, attributes, len(attributes), 0))
    if ruleset < 0:
        return 0
    refused = _call(RESTRICT_SELF, ruleset, 0)
    ctypes.CDLL(None).close(ruleset)
    return 0 if refused else version


def _call(number: int, *arguments: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))
