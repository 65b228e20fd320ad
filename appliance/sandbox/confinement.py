"""What a sandbox process gives up before it runs anything; its environment is empty already."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
# Wasmtime reserves 4 GiB of addresses and guards for each place; none of it is memory until it is used.
ADDRESS_SPACE = 1 << 40
DECISION_ADDRESS_SPACE = 1 << 30
OPEN_FILES = 1024
WRITTEN_BYTES = 1 << 20


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that made it ends; must come first."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def confine(address_space: int = ADDRESS_SPACE) -> None:
    """Lower every limit that nothing here needs."""
    os.chdir("/")
    os.umask(0o077)
    # Whoever stops the appliance lets it finish; its sandboxes end with it, not before.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_FSIZE: WRITTEN_BYTES,
        resource.RLIMIT_AS: address_space,
    }
    for kind, value in limits.items():
        _, hard = resource.getrlimit(kind)
        lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (lowered, lowered))
    _prctl(PR_SET_DUMPABLE, 0)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def forbid_processes() -> None:
    """No further thread or process, when all threads are there; without effect for root."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option})")
