"""Limits and dropped privileges of a child process that handles untrusted code or content; it starts with an empty environment.

Except for the resource limits, everything here applies to the calling thread and the threads it starts later, so call it
before starting threads.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
# Linux UAPI linux/capability.h: the third layout, two words of each set; there are at most 64 capabilities.
CAPABILITY_VERSION, CAPABILITIES = 0x20080522, 64
# When memory runs out, the kernel kills these processes first: a child's work can be retried, the appliance's cannot.
OOM_SCORE = "800"
# Wasmtime reserves 4 GiB of addresses and guard pages per instance slot; none of it is memory until it is used.
ADDRESS_SPACE = 1 << 40
OPEN_FILES = 1024
WRITTEN_BYTES = 1 << 20


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends; call it first."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def confine(address_space: int = ADDRESS_SPACE, written_bytes: int = WRITTEN_BYTES) -> None:
    """Lower every resource limit to what the child needs."""
    with suppress(OSError):  # the score is higher already, or /proc is not writable
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    os.chdir("/")
    os.umask(0o077)
    # A signal to the whole process group stops the appliance gracefully; its children must not end before it.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_FSIZE: written_bytes,
        resource.RLIMIT_AS: address_space,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    for kind, value in limits.items():
        _, hard = resource.getrlimit(kind)
        lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (lowered, lowered))
    _prctl(PR_SET_DUMPABLE, 0)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def become_nobody(user: int | None) -> int | None:
    """Drop all capabilities and, as root, switch to the unused user and group `user`; returns the user id switched to.

    Returns None when this process is not root, `user` is None, or the user namespace does not map the id.
    """
    for capability in range(CAPABILITIES):
        if _library().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            break  # beyond the last capability, or not permitted
    became = user if user is not None and os.geteuid() == 0 and _change_user(user) else None
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    if _library().capset(header, (ctypes.c_uint32 * 6)()) and _has_capabilities():
        raise OSError(ctypes.get_errno(), "capset")
    return became


def _has_capabilities() -> bool:
    """Whether any capability is left; a service manager that dropped them all may also forbid the `capset` call."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return any(line.startswith(("CapPrm:", "CapInh:")) and int(line.split()[1], 16) for line in lines)


def _change_user(user: int) -> bool:
    parent = os.getppid()
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError:
        return False
    # The kernel resets both when a process changes its user.
    _prctl(PR_SET_DUMPABLE, 0)
    die_with_parent(parent)
    return True


def forbid_processes() -> None:
    """Forbid further threads and processes; the kernel exempts root, so call `become_nobody` before."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _library().prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option})")
