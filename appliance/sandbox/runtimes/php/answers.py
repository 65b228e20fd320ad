"""What PHP's C library asks of the outside, answered within WebAssembly: little is passed on, the rest does not exist."""

from __future__ import annotations

from appliance.sandbox.php.engine import IMPORTS
from appliance.sandbox.runtimes.php.module import Signature

# Error numbers of the C library: system calls answer them negative, WASI calls as they are.
_ENOSYS, _EINVAL, _ENOTTY, _EAI_FAIL = 52, 28, 59, -4
_HEAP_LIMIT = 0x80000000
_UTC = 0x00435455  # "UTC" and its end, as it lies in memory


def _get(*locals_: int) -> str:
    return " ".join(f"(local.get {each})" for each in locals_)


def _number(value: int) -> str:
    return f"(i32.const {value})"


# import: (host function, which of its parameters are passed on)
_PASSED_ON = {
    "__syscall_openat": ("open", (1, 2)),
    "__syscall_stat64": ("stat", (0, 1)),
    "__syscall_lstat64": ("stat", (0, 1)),
    "__syscall_newfstatat": ("stat", (1, 2)),
    "__syscall_fstat64": ("fstat", (0, 1)),
    "__syscall_faccessat": ("access", (1,)),
    "__syscall_unlinkat": ("unlink", (1,)),
    "__syscall_renameat": ("rename", (1, 3)),
    "__syscall_ftruncate64": ("ftruncate", (0, 1)),
    "_gmtime_js": ("gmtime", (0, 1)),
    "_localtime_js": ("gmtime", (0, 1)),
    "_mktime_js": ("timegm", (0,)),
    "emscripten_sleep": ("sleep", (0,)),
    "fd_close": ("fd_close", (0,)),
    "wasm_close": ("fd_close", (0,)),
    "fd_read": ("fd_read", (0, 1, 2, 3)),
    "js_fd_read": ("fd_read", (0, 1, 2, 3)),
    "fd_write": ("fd_write", (0, 1, 2, 3)),
    "fd_seek": ("fd_seek", (0, 1, 2, 3)),
}
_DONE = (
    *("__syscall_chdir", "__syscall_fcntl64", "__syscall_fdatasync", "__syscall_chmod", "__syscall_fchmod"),
    *("__syscall_utimensat", "fd_sync", "js_flock", "_setitimer_js", "environ_get"),
)
_NULL = (
    *("__asyncjs__js_popen_to_file", "getprotobyname", "getprotobynumber", "_dlopen_js", "_dlsym_js"),
    *("_emscripten_lookup_name", "strptime", "__asyncjs__wasm_poll_socket"),
)
_MINUS_ONE = (*("getcontext", "js_popen_get_pid_for_fd", "js_waitpid", "js_process_status", "wasm_setsockopt", "wasm_shutdown"),)
_FATAL = ("_abort_js", "__assert_fail", "swapcontext", "makecontext")

_NANOSECONDS = "(f64.div (f64.convert_i64_u (call $now (i32.const {clock}))) (f64.const 1e6))"
_GROW = """(local $missing i32)
    (local.set $missing (i32.sub
        (i32.add (i32.shr_u (local.get 0) (i32.const 16)) (i32.ne (i32.and (local.get 0) (i32.const 65535)) (i32.const 0)))
        (memory.size)))
    (if (i32.le_s (local.get $missing) (i32.const 0)) (then (return (i32.const 1))))
    (i32.ne (memory.grow (local.get $missing)) (i32.const -1))"""
# post_message_to_js(text): the host's answer is copied into memory that PHP frees.
_MESSAGE = """(local $length i32) (local $copy i32)
    (local.set $length (call $msg (local.get 0)))
    (local.set $copy (call $malloc (i32.add (local.get $length) (i32.const 1))))
    (if (i32.eqz (local.get $copy)) (then (return (i32.const -1))))
    (call $take (local.get $copy))
    (i32.store8 (i32.add (local.get $copy) (local.get $length)) (i32.const 0))
    (i32.store (local.get 1) (local.get $copy))
    (local.get $length)"""
_TERMINAL_OR_FILE = """(memory.fill (local.get 1) (i32.const 0) (i32.const 24))
    (i32.store8 (local.get 1) (select (i32.const 2) (i32.const 4) (i32.lt_u (local.get 0) (i32.const 3))))
    (i32.const 0)"""
_NO_ENVIRONMENT = "(i32.store (local.get 0) (i32.const 0)) (i32.store (local.get 1) (i32.const 0)) (i32.const 0)"
_ZONE = (
    "(i32.store (local.get 0) (i32.const 0)) (i32.store (local.get 1) (i32.const 0))"
    f" (i32.store (local.get 2) (i32.const {_UTC})) (i32.store (local.get 3) (i32.const {_UTC}))"
)
_ROOT = "(i32.store16 (local.get 0) (i32.const 0x2f)) (i32.const 2)"
_BODIES = {
    **{name: f"(call ${host} {_get(*passed)})" for name, (host, passed) in _PASSED_ON.items()},
    **dict.fromkeys((*_DONE, *_NULL), _number(0)),
    **dict.fromkeys(_MINUS_ONE, _number(-1)),
    **dict.fromkeys(_FATAL, "unreachable"),
    **dict.fromkeys(("exit", "proc_exit"), "(call $exit (local.get 0)) unreachable"),
    **dict.fromkeys(("getaddrinfo", "getnameinfo"), _number(_EAI_FAIL)),
    "__asyncjs__js_module_onMessage": _MESSAGE,
    "__syscall_getcwd": _ROOT,
    "__syscall_ioctl": _number(-_ENOTTY),
    "__syscall_readlinkat": _number(-_EINVAL),
    "_emscripten_system": f"(select {_number(-_ENOSYS)} {_number(0)} (local.get 0))",
    "_tzset_js": _ZONE,
    "clock_time_get": "(i64.store (local.get 2) (call $now (local.get 0))) (i32.const 0)",
    "emscripten_date_now": _NANOSECONDS.format(clock=0),
    "emscripten_get_heap_max": _number(_HEAP_LIMIT),
    "emscripten_get_now": _NANOSECONDS.format(clock=1),
    "emscripten_resize_heap": _GROW,
    "environ_sizes_get": _NO_ENVIRONMENT,
    "fd_fdstat_get": _TERMINAL_OR_FILE,
    "getdtablesize": _number(64),
    "js_getpid": _number(1),
    "random_get": "(call $random (local.get 0) (local.get 1)) (i32.const 0)",
}
_TYPES = {"i": "i32", "I": "i64"}


def _typed(keyword: str, kinds: str) -> str:
    return f"({keyword} {' '.join(_TYPES[each] for each in kinds)})" if kinds else ""


def _answer(space: str, name: str, signature: Signature) -> str:
    body = _BODIES.get(name)
    if body is not None:
        return body
    if not signature.results:
        return "nop"
    return _number(_ENOSYS if space.startswith("wasi") else -_ENOSYS)


def answering_module(functions: dict[str, tuple[str, Signature]], pages: int) -> str:
    """WebAssembly text that exports everything that is `wanted` (name: module it was asked of, and its types)."""
    out = ["(module"]
    for space, name, parameters, answer, _ in IMPORTS:
        out.append(f'(import "{space}" "{name}" (func ${name} {_typed("param", parameters)} {_typed("result", answer)}))')
    out.append('(import "php" "malloc" (func $malloc (param i32) (result i32)))')
    out.append(f'(import "php" "memory" (memory {pages}))')
    for name, (space, signature) in sorted(functions.items()):
        types = " ".join(
            f"({keyword} {' '.join(kinds)})"
            for keyword, kinds in (("param", signature.parameters), ("result", signature.results))
            if kinds
        )
        out.append(f'(func (export "{name}") {types} {_answer(space, name, signature)})')
    return "\n".join([*out, ")"])
