"""Access confined to one folder of this machine: names are opened relative to folder descriptors, and links are not followed."""

import ctypes
import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

from appliance.connectors.contract import ConfigError, ConnectorError, FileInfo, FileKind, Rejected, TransientError
from appliance.core.sentences import Sentence

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would block until another process writes to it.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DRAFT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RENAME_NOREPLACE = 1
_MOST_COUNTED = 200_000
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NOT_KNOWN_HERE = (errno.EINVAL, errno.ENOSYS)


@dataclass(frozen=True)
class Jail:
    """A `Folder` of the contract at `inner` below the allowed folder `base`; operations end at `deadline` (monotonic seconds)."""

    base: str
    inner: str
    read_only: bool
    quota: int
    deadline: float

    @property
    def writable(self) -> bool:
        with _contract_errors(""), self._folder("") as folder:
            return not self.read_only and os.access(".", os.W_OK | os.X_OK, dir_fd=folder)

    def scan(self, path: str = "") -> Iterator[FileInfo]:
        with _contract_errors(path), self._folder(path) as folder, os.scandir(folder) as names:
            for each in names:
                self._check_deadline()
                with suppress(FileNotFoundError):  # deleted since the listing
                    yield _info(each.name, each.stat(follow_symlinks=False))

    def stat(self, path: str) -> FileInfo | None:
        with _contract_errors(path):
            try:
                if not path:
                    with self._folder("") as folder:
                        return _info("", os.fstat(folder))
                with self._parent(path) as (folder, name):
                    return _info(name, os.stat(name, dir_fd=folder, follow_symlinks=False))
            except FileNotFoundError:
                return None

    def open(self, path: str) -> BinaryIO:
        with _contract_errors(path), self._parent(path) as (folder, name):
            descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise Rejected(Sentence("%(path)s is not a file.", path=repr(path)))
                return os.fdopen(descriptor, "rb")
            except BaseException:
                os.close(descriptor)
                raise

    def write(self, path: str, parts: Iterable[bytes], draft: str) -> int:
        self._check_writable()
        if "/" in draft or draft in ("", ".", ".."):
            raise ConfigError("The draft must be a plain file name.")
        room = self._free_quota()
        with _contract_errors(path), self._parent(path) as (folder, name):
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            try:
                size = self._fill(_draft(folder, draft), parts, room)
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=folder)
                raise
            os.fsync(folder)
            return size

    def _fill(self, descriptor: int, parts: Iterable[bytes], room: int | None) -> int:
        size = 0
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                self._check_deadline()
                size += len(part)
                if room is not None and size > room:
                    raise Rejected(Sentence(
                        "%(base)s would exceed its quota of %(quota)s bytes; delete files there, or ask the operator "
                        "to raise folders.quota_mb.",
                        base=self.base, quota=self.quota,
                    ))
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return size

    def move(self, source: str, target: str) -> None:
        self._check_writable()
        with _contract_errors(source), self._parent(source) as (old, name):
            os.stat(name, dir_fd=old, follow_symlinks=False)
            with _contract_errors(target), self._parent(target) as (new, new_name):
                _rename_no_replace(old, name, new, new_name)
                os.fsync(new)
            os.fsync(old)

    def delete(self, path: str) -> bool:
        self._check_writable()
        with _contract_errors(path):
            try:
                with self._parent(path) as (folder, name):
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    (os.rmdir if stat.S_ISDIR(status.st_mode) else os.unlink)(name, dir_fd=folder)
                    os.fsync(folder)
            except FileNotFoundError:
                return False
            return True

    def make_folder(self, path: str) -> bool:
        self._check_writable()
        is_new = False
        names = _names(path)
        for count in range(len(names)):
            inner = "/".join(names[: count + 1])
            with _contract_errors(inner), self._parent(inner) as (folder, name):
                try:
                    os.mkdir(name, dir_fd=folder)
                    os.fsync(folder)
                    is_new = True
                except FileExistsError:
                    os.close(_deeper(folder, name))
        return is_new

    def place(self, path: str, *, for_writing: bool) -> str:
        if for_writing:
            self._check_writable()
        info = self.stat(path)
        if info is None or info.kind != "file":
            raise Rejected(Sentence("%(path)s is not a file; list its folder to see what it contains.", path=repr(path)))
        return "/".join(part for part in (self.base, self.inner, path) if part)

    def _check_writable(self) -> None:
        if self.read_only:
            raise Rejected(Sentence("%(base)s is read-only; the operator can change this in folders.allow.", base=self.base))

    def _free_quota(self) -> int | None:
        """Return how many bytes may still be written, None for no limit.  Concurrent writes are not counted."""
        if not self.quota:
            return None
        with _contract_errors(""), self._base() as base:
            used = count = 0
            for _, _, names, folder in os.fwalk(".", dir_fd=base):
                self._check_deadline()
                count += len(names)
                if count > _MOST_COUNTED:
                    raise Rejected(Sentence(
                        "%(base)s contains more than %(most_counted)s files; move or delete files that are no longer needed.",
                        base=self.base, most_counted=_MOST_COUNTED,
                    ))
                for name in names:
                    with suppress(FileNotFoundError):
                        used += os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
        return max(0, self.quota - used)

    def _check_deadline(self) -> None:
        if time.monotonic() >= self.deadline:
            raise TransientError(f"The operation in {self.base} did not finish in time.")

    @contextmanager
    def _base(self) -> Iterator[int]:
        """Open the operator's folder; a symbolic link the operator configured is followed."""
        descriptor = os.open(self.base, _FOLDER_FLAGS)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _folder(self, path: str) -> Iterator[int]:
        """Open the folder at `path` and yield its descriptor."""
        descriptor = os.open(self.base, _FOLDER_FLAGS)
        try:
            for name in (*_names(self.inner), *_names(path)):
                deeper = _deeper(descriptor, name)
                os.close(descriptor)
                descriptor = deeper
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder that contains the path's last name; yield its descriptor and that name."""
        *above, name = _names(path) or [""]
        if not name:
            raise ConfigError("The path is empty; name a file or folder.")
        with self._folder("/".join(above)) as folder:
            yield folder, name


def _names(path: str) -> list[str]:
    names = path.split("/") if path else []
    if any(name in ("", ".", "..") or "\0" in name for name in names):
        raise ConfigError(f"The path {path[:200]!r} must be relative, without empty names, `.` and `..`.")
    return names


def _deeper(folder: int, name: str) -> int:
    return os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)


def _draft(folder: int, name: str) -> int:
    """Create a file with the read and write permissions of its folder, regardless of the process's umask."""
    descriptor = os.open(name, _DRAFT_FLAGS, 0o666, dir_fd=folder)
    with suppress(PermissionError):  # a file system without permissions, such as FAT
        os.fchmod(descriptor, os.fstat(folder).st_mode & 0o666)
    return descriptor


def _info(name: str, status: os.stat_result) -> FileInfo:
    kind: FileKind = "folder" if stat.S_ISDIR(status.st_mode) else "file" if stat.S_ISREG(status.st_mode) else "other"
    display_name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if display_name != name:  # JSON cannot represent the name, so the entry is listed but cannot be opened
        kind = "other"
    return FileInfo(display_name, kind, status.st_size if kind == "file" else 0, status.st_mtime)


def _rename_no_replace(old: int, name: str, new: int, new_name: str) -> None:
    """Rename without replacing an existing file, atomically by renameat2(2) where the file system supports it."""
    call = ctypes.CDLL(None, use_errno=True).renameat2
    if call(old, os.fsencode(name), new, os.fsencode(new_name), _RENAME_NOREPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number not in _NOT_KNOWN_HERE:
        raise OSError(number, os.strerror(number))
    rename_after_check(old, name, new, new_name)


def rename_after_check(old: int, name: str, new: int, new_name: str) -> None:
    """Rename after checking that the target is free, for file systems such as NFS without renameat2 flags.

    A file created at the target between the check and the rename is replaced.
    """
    try:
        os.stat(new_name, dir_fd=new, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(name, new_name, src_dir_fd=old, dst_dir_fd=new)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


@contextmanager
def _contract_errors(path: str) -> Iterator[None]:
    """Convert errors of the operating system to errors of the contract."""
    try:
        yield
    except OSError as error:
        raise _refusal(error, path) from error


def _refusal(error: OSError, path: str) -> ConnectorError:
    name = repr(path) if path else "the integration's folder"
    if isinstance(error, FileNotFoundError):
        return Rejected(Sentence("%(name)s does not exist; list the parent folder to see what it contains.", name=name))
    if isinstance(error, FileExistsError):
        return Rejected(Sentence("%(name)s already exists; delete it first or choose another name.", name=name))
    if isinstance(error, NotADirectoryError) or error.errno == errno.ELOOP:
        return Rejected(
            Sentence("%(name)s leads through a symbolic link or something that is not a folder, which is not allowed.", name=name)
        )
    if isinstance(error, IsADirectoryError):
        return Rejected(Sentence("%(name)s is a folder.", name=name))
    if error.errno == errno.ENOTEMPTY:
        return Rejected(Sentence("The folder %(name)s is not empty; delete its contents first.", name=name))
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return Rejected(Sentence(
            "The appliance has no permission for this on %(name)s; check the permissions of the user it runs as.", name=name
        ))
    if error.errno in _NO_ROOM:
        return Rejected("The disk is full; free some space.")
    if error.errno in (errno.ENAMETOOLONG, errno.EXDEV, errno.ENXIO, errno.EINVAL, errno.EILSEQ):
        return Rejected(Sentence("This operation is not possible on %(name)s (%(strerror)s).", name=name, strerror=error.strerror))
    return TransientError(f"The operation on {name} failed ({error.strerror}).", outcome="unknown")
