"""What a PHP step has for a disk: its process's own files to read, and a small /tmp of its own, all in memory."""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

# Where the files of the process lie, so that they cannot meet anything else.
ROOT = "/process/"
TMP_BYTES, TMP_FILES, OPEN_FILES = 16 << 20, 200, 60
# Numbers of WASI preview 1, which the C library of the runtime uses.
EACCES, EBADF, EEXIST, EINVAL, EISDIR, EMFILE, ENOENT, ENOSPC, ESPIPE = 2, 8, 20, 28, 31, 33, 44, 51, 70
# Flags of open(2).
WRITES, CREATE, EXCLUSIVE, TRUNCATE, APPEND = 3, 64, 128, 512, 1024
FOLDER, READ_ONLY_FILE, FILE, DEVICE = 0o040755, 0o100444, 0o100644, 0o020666
STANDARD = 3
# How the path of OpenSSL's configuration ends: where it cannot be read, OpenSSL makes no keys.
OPENSSL = "/install/ssl/openssl.cnf"
_STAT = struct.Struct("<6Iqii48xq")
_BLOCK = 4096


class FileFault(Exception):
    """A call that the C library is to see fail; `number` says why."""

    def __init__(self, number: int) -> None:
        super().__init__(f"errno {number}")
        self.number = number


@dataclass
class _Open:
    kind: Literal["file", "random", "nothing"]
    data: bytes | bytearray = b""
    at: int = 0
    writes: bool = False
    appends: bool = False

    def buffer(self) -> bytearray:
        """What a write goes to."""
        if not self.writes or not isinstance(self.data, bytearray):
            raise FileFault(EBADF)
        return self.data


def _stat(mode: int, size: int = 0) -> bytes:
    """struct stat of the runtime's C library; times are zero, for a step has no file older than itself."""
    return _STAT.pack(1, mode, 1, 0, 0, 0, size, _BLOCK, (size + 511) // 512, 1)


@dataclass
class Files:
    """`sources` by absolute path; `draw` answers that many random bytes, or None while there are none."""

    sources: Mapping[str, bytes]
    draw: Callable[[int], bytes] | None
    _tmp: dict[str, bytearray] = field(default_factory=dict)
    _tmp_bytes: int = 0
    _open: dict[int, _Open] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._folders = {"/", "/tmp"}  # noqa: S108  the step's own, in memory
        for path in self.sources:
            while (path := posixpath.dirname(path)) not in self._folders:
                self._folders.add(path)

    @property
    def is_untouched(self) -> bool:
        return not self._open and not self._tmp

    # ---- by path

    def _find(self, path: str) -> bytes | bytearray | None:
        content = self.sources.get(path)
        return content if content is not None else self._tmp.get(path)

    def stat(self, path: str) -> bytes:
        path = _normal(path)
        if path in self._folders:
            return _stat(FOLDER)
        if path == "/dev/urandom" and self.draw is not None:
            return _stat(DEVICE)
        content = self._find(path)
        if content is None:
            raise FileFault(ENOENT)
        return _stat(READ_ONLY_FILE if path in self.sources else FILE, len(content))

    def access(self, path: str) -> None:
        self.stat(path)

    def open(self, path: str, flags: int) -> int:
        """A descriptor of its own for every opening."""
        path = _normal(path)
        if len(self._open) >= OPEN_FILES:
            raise FileFault(EMFILE)
        opened = self._open_to_write(path, flags) if flags & WRITES else self._open_to_read(path)
        descriptor = next(number for number in range(STANDARD, STANDARD + OPEN_FILES + 1) if number not in self._open)
        self._open[descriptor] = opened
        return descriptor

    def _open_to_read(self, path: str) -> _Open:
        if path == "/dev/urandom" and self.draw is not None:
            return _Open("random")
        content = b"" if path.endswith(OPENSSL) else self._find(path)
        if content is None:
            raise FileFault(EISDIR if path in self._folders else ENOENT)
        return _Open("file", content)

    def _open_to_write(self, path: str, flags: int) -> _Open:
        if path.startswith("/request/"):  # the runtime throws all output away when it cannot leave its headers there
            return _Open("nothing")
        if posixpath.dirname(path) != "/tmp":  # noqa: S108  the step's own, in memory
            raise FileFault(EACCES)
        content = self._tmp.get(path)
        if content is None:
            if not flags & CREATE:
                raise FileFault(ENOENT)
            if len(self._tmp) >= TMP_FILES:
                raise FileFault(ENOSPC)
            content = self._tmp[path] = bytearray()
        elif flags & CREATE and flags & EXCLUSIVE:
            raise FileFault(EEXIST)
        opened = _Open("file", content, writes=True, appends=bool(flags & APPEND))
        if flags & TRUNCATE:
            self._resize(content, 0)
        return opened

    def unlink(self, path: str) -> None:
        deleted = self._tmp.pop(_normal(path), None)
        if deleted is None:
            raise FileFault(EACCES if _normal(path) in self.sources else ENOENT)
        self._release(deleted)

    def rename(self, path: str, target: str) -> None:
        """Within /tmp; what had the new name before is gone."""
        path, target = _normal(path), _normal(target)
        if path not in self._tmp:
            raise FileFault(EACCES if path in self.sources else ENOENT)
        if posixpath.dirname(target) != "/tmp":  # noqa: S108  the step's own, in memory
            raise FileFault(EACCES)
        if path == target:
            return
        replaced, self._tmp[target] = self._tmp.get(target), self._tmp.pop(path)
        if replaced is not None:
            self._release(replaced)

    def _release(self, data: bytes | bytearray) -> None:
        """Count bytes no more that nobody can reach: a removed file lives on while it is open."""
        contents = [*self._tmp.values(), *(each.data for each in self._open.values())]
        if isinstance(data, bytearray) and not any(each is data for each in contents):
            self._tmp_bytes -= len(data)

    # ---- by descriptor

    def _at(self, descriptor: int) -> _Open:
        file = self._open.get(descriptor)
        if file is None:
            raise FileFault(ESPIPE if 0 <= descriptor < STANDARD else EBADF)
        return file

    def stat_open(self, descriptor: int) -> bytes:
        if 0 <= descriptor < STANDARD:
            return _stat(DEVICE)
        file = self._at(descriptor)
        return _stat(DEVICE if file.kind == "random" else FILE, len(file.data))

    def read(self, descriptor: int, count: int) -> bytes:
        if descriptor == 0:
            return b""
        file = self._at(descriptor)
        if file.kind == "random":
            return self.draw(count) if self.draw is not None else b""
        data = bytes(file.data[file.at : file.at + count])
        file.at += len(data)
        return data

    def write(self, descriptor: int, data: bytes) -> None:
        file = self._at(descriptor)
        if file.kind == "nothing":
            return
        buffer = file.buffer()
        at = len(buffer) if file.appends else file.at
        if at + len(data) > len(buffer):
            self._resize(buffer, at + len(data))
        buffer[at : at + len(data)] = data
        file.at = at + len(data)

    def seek(self, descriptor: int, offset: int, whence: int) -> int:
        file = self._at(descriptor)
        if not 0 <= whence <= 2:  # SEEK_SET, SEEK_CUR, SEEK_END
            raise FileFault(EINVAL)
        at = offset + (0, file.at, len(file.data))[whence]
        if not 0 <= at <= TMP_BYTES:
            raise FileFault(EINVAL)
        file.at = at
        return at

    def truncate(self, descriptor: int, size: int) -> None:
        if size < 0:
            raise FileFault(EINVAL)
        self._resize(self._at(descriptor).buffer(), size)

    def close(self, descriptor: int) -> None:
        closed = self._open.pop(descriptor, None)
        if closed is None:
            raise FileFault(EBADF)
        self._release(closed.data)

    def _resize(self, data: bytearray, size: int) -> None:
        total = self._tmp_bytes + size - len(data)
        if total > TMP_BYTES:
            raise FileFault(ENOSPC)
        if size < len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))
        self._tmp_bytes = total


def _normal(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))
