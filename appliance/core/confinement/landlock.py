"""Denies a child process access to all paths, ports and other processes, by Landlock.

A second barrier behind the system call filter.  Layout and bits: Linux UAPI linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import struct

CREATE_RULESET, RESTRICT_SELF = 444, 446
ASK_VERSION = 1
# The number of file access rights by Landlock version; version 4 added ports, version 6 scopes.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_PORTS, _SCOPES = 4, 6
_BIND_AND_CONNECT, _ABSTRACT_SOCKETS_AND_SIGNALS = 3, 3


def known_version() -> int:
    """The kernel's Landlock version; 0 if it has none."""
    return max(0, int(_call(CREATE_RULESET, None, 0, ASK_VERSION)))


def reach_nothing() -> int:
    """Deny every path and port to this thread and those it starts; returns the Landlock version, 0 if there is none."""
    version = known_version()
    if not version:
        return 0
    handled = [(1 << _FILE_RIGHTS[min(version, max(_FILE_RIGHTS))]) - 1]
    if version >= _PORTS:
        handled.append(_BIND_AND_CONNECT)
    if version >= _SCOPES:
        handled.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    # Without rules, everything handled is denied.
    ruleset = int(_call(CREATE_RULESET, attributes, len(attributes), 0))
    if ruleset < 0:
        return 0
    refused = _call(RESTRICT_SELF, ruleset, 0)
    ctypes.CDLL(None).close(ruleset)
    return 0 if refused else version


def _call(number: int, *arguments: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))
