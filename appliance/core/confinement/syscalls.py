"""A seccomp filter that leaves a child process only computation and the sockets it already has.

It can open no file, start no process, create no socket and make no memory executable; threads only with `threads` (the
decision engine starts two per decision).  Calls that are not listed fail with EPERM.
Layout of instructions and data: Linux UAPI linux/filter.h and linux/seccomp.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass

SECCOMP_SET_MODE_FILTER, FILTER_ALL_THREADS = 1, 1
ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
LOAD_WORD, JUMP_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
PROT_EXEC, CLONE_THREAD, PR_SET_NAME = 4, 0x10000, 15

# x86-64 number, arm64 number (None: the call does not exist there)
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "poll": (7, None),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "ioctl": (16, 29),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "exit": (60, 93),
    "fcntl": (72, 25),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "epoll_wait": (232, None),
    "epoll_ctl": (233, 21),
    "ppoll": (271, 73),
    "set_robust_list": (273, 99),
    "epoll_pwait": (281, 22),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "rseq": (334, 293),
}

_FOR_THREADS: dict[str, tuple[int | None, int | None]] = {"eventfd2": (290, 19), "epoll_create1": (291, 20)}
CLONE3 = 435


@dataclass(frozen=True)
class _Architecture:
    audit: int
    column: int
    seccomp: int
    mmap: int
    mprotect: int
    tgkill: int
    clone: int
    prctl: int


_ARCHITECTURES = {
    "x86_64": _Architecture(audit=0xC000003E, column=0, seccomp=317, mmap=9, mprotect=10, tgkill=234, clone=56, prctl=157),
    "aarch64": _Architecture(audit=0xC00000B7, column=1, seccomp=277, mmap=222, mprotect=226, tgkill=131, clone=220, prctl=167),
}


def _instruction(code: int, value: int, when: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("<HBBI", code, when, otherwise, value)


def _argument(number: int) -> bytes:
    """Load the low half of a system call argument."""
    return _instruction(LOAD_WORD, ARGUMENTS_AT + 8 * number)


def _for_threads(here: _Architecture) -> list[bytes]:
    """Allow starting and naming threads; clone3 passes its flags by pointer, so it answers ENOSYS and libc uses clone."""
    refuse, allow = _instruction(RETURN, REFUSE), _instruction(RETURN, ALLOW)
    out = [_instruction(JUMP_EQUAL, CLONE3, otherwise=1), _instruction(RETURN, UNKNOWN)]
    out += [_instruction(JUMP_EQUAL, here.clone, otherwise=4), _argument(0)]
    out += [_instruction(JUMP_ANY_BIT, CLONE_THREAD, otherwise=1), allow, refuse]
    out += [_instruction(JUMP_EQUAL, here.prctl, otherwise=4), _argument(0)]
    out += [_instruction(JUMP_EQUAL, PR_SET_NAME, otherwise=1), allow, refuse]
    return out


def _program(here: _Architecture, threads: bool) -> bytes:
    refuse, allow = _instruction(RETURN, REFUSE), _instruction(RETURN, ALLOW)
    out = [_instruction(LOAD_WORD, ARCHITECTURE_AT), _instruction(JUMP_EQUAL, here.audit, when=1), refuse]
    out += [_instruction(LOAD_WORD, NUMBER_AT)]
    for call in (here.mmap, here.mprotect):
        out += [_instruction(JUMP_EQUAL, call, otherwise=4), _argument(2)]
        out += [_instruction(JUMP_ANY_BIT, PROT_EXEC, when=1), allow, refuse]
    # abort() sends a signal to its own process; signals to others are denied.
    out += [_instruction(JUMP_EQUAL, here.tgkill, otherwise=4), _argument(0)]
    out += [_instruction(JUMP_EQUAL, os.getpid(), otherwise=1), allow, refuse]
    if threads:
        out += _for_threads(here)
    for numbers in (_ALLOWED | _FOR_THREADS if threads else _ALLOWED).values():
        number = numbers[here.column]
        if number is not None:
            out += [_instruction(JUMP_EQUAL, number, otherwise=1), allow]
    return b"".join([*out, refuse])


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def confine_calls(threads: bool) -> bool:
    """Install the filter on all threads; False if the kernel or architecture does not support it.  Needs no_new_privs."""
    here = _ARCHITECTURES.get(platform.machine())
    if here is None:
        return False
    program = _program(here, threads)
    rule = _Filter(len(program) // 8, program)
    library = ctypes.CDLL(None, use_errno=True)
    answer = library.syscall(here.seccomp, SECCOMP_SET_MODE_FILTER, FILTER_ALL_THREADS, ctypes.byref(rule))
    return bool(answer == 0)
