"""What a child process that handles foreign code or content gives up before it does; its environment is empty already.

Everything here but the limits holds for the calling thread and those it makes later, so it comes before them.
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
# When memory runs out, the kernel looks here first: what a child does can be tried again, the appliance cannot.
OOM_SCORE = "800"
# Wasmtime reserves 4 GiB of addresses and guards for each place; none of it is memory until it is used.
ADDRESS_SPACE = 1 << 40
OPEN_FILES = 1024
WRITTEN_BYTES = 1 << 20


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that made it ends; must come first."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def confine(address_space: int = ADDRESS_SPACE, written_bytes: int = WRITTEN_BYTES) -> None:
    """Lower every limit that nothing here needs."""
    with suppress(OSError):  # somebody wants us ended even sooner, or /proc cannot be written: then it stays
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    os.chdir("/")
    os.umask(0o077)
    # Whoever stops the appliance lets it finish; its children end with it, not before.
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
    """Give up all capabilities and, as root, become a user and group that nobody else is; answers that user's number.

    None when this process was not root, was to stay it, or lies in a user namespace that does not know the number.
    """
    for capability in range(CAPABILITIES):
        if _library().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            break  # beyond the last one, or not ours to drop
    became = user if user is not None and os.geteuid() == 0 and _change_user(user) else None
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    if _library().capset(header, (ctypes.c_uint32 * 6)()) and _has_capabilities():
        raise OSError(ctypes.get_errno(), "capset")
    return became


def _has_capabilities() -> bool:
    """Whether there was anything to give up: a service manager may forbid the call, having taken them all."""
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
    # The kernel forgets both when a process changes its user.
    _prctl(PR_SET_DUMPABLE, 0)
    die_with_parent(parent)
    return True


def forbid_processes() -> None:
    """No further thread or process, when all threads are there; the kernel exempts root, which `become_nobody` ends."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _library().prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option})")
