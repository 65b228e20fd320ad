"""Reads a trace of system calls, and tells what a power cut would have left of a folder at any of them.

The model is strict: without fsync of the file, each write may be there, be lost, or be torn at a sector; without fsync of the
folder, so may each new, renamed or deleted name be.  (After ALICE, Pillai et al., OSDI 2014.)
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "openat", "creat", "write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "truncate", "fsync", "fdatasync", "msync",
    "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "link", "linkat", "sendto", "sendmsg",
    "copy_file_range", "sendfile",
)  # fmt: skip
TRACE = ("strace", "-f", "-y", "-xx", "-s", "1000000", "--seccomp-bpf", "-e", f"trace={','.join(CALLS)}")
SECTOR = 512
UNSUPPORTED = {"msync", "pwritev", "pwritev2", "copy_file_range", "sendfile"}
_LINE = re.compile(r"(\d+) +(\w+)\((.*)", re.DOTALL)
_RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(r"(\d+)<([^>]*)>")
_LAST_NUMBER = re.compile(r", (\d+)(?:\)| <unfinished)")
_RESULT = re.compile(r"\) += (-?\d+|\?)")


@dataclass
class Call:
    """One system call: its arguments as printed, and its result once it has returned."""

    name: str
    arguments: str
    result: int = -1

    @property
    def path(self) -> str:
        """The path of the first descriptor, or `socket:…`."""
        match = _FD.match(self.arguments)
        return _decode(match[2]) if match else ""

    @property
    def strings(self) -> list[bytes]:
        return [bytes.fromhex(each.replace("\\x", "")) for each in _STRING.findall(self.arguments)]


def _decode(text: str) -> str:
    return bytes.fromhex(text.replace("\\x", "")).decode() if text.startswith("\\x") else text


def _last_number(call: Call) -> int:
    """The last argument: an offset, or a length."""
    return int(_LAST_NUMBER.findall(call.arguments[-200:])[-1])


def read_trace(file: Path) -> Iterator[tuple[str, Call]]:
    """`begin` and `end` of each call, in their order; strace's options are those of `TRACE`."""
    waiting: dict[str, Call] = {}
    with file.open(encoding="latin-1") as lines:
        for line in lines:
            if (resumed := _RESUMED.match(line)) is not None:
                call = waiting.pop(resumed[1])
                call.arguments += resumed[3]
                yield "end", _returned(call, line)
            elif (line_match := _LINE.match(line)) is not None:
                call = Call(line_match[2], line_match[3])
                yield "begin", call
                if line.rstrip().endswith("<unfinished ...>"):
                    waiting[line_match[1]] = call
                else:
                    yield "end", _returned(call, line)


def _returned(call: Call, line: str) -> Call:
    results = _RESULT.findall(line[-3000:])
    call.result = int(results[-1]) if results and results[-1] != "?" else -1
    return call


@dataclass
class Node:
    """A file or folder: `durable` bytes, and the writes and truncations since, of which those begun may be on the disk."""

    is_folder: bool = False
    durable: bytearray = field(default_factory=bytearray)
    pending: list["Change"] = field(default_factory=list)
    size: int = 0

    def settle(self, changes: list["Change"]) -> None:
        """These changes are on the disk."""
        for each in changes:
            if each in self.pending:
                self.pending.remove(each)
                each.apply(self.durable)


@dataclass(eq=False)
class Change:
    """A write, or a truncation when there is no `data`."""

    at: int
    data: bytes | None
    is_done: bool = False

    def apply(self, content: bytearray, length: int | None = None) -> None:
        if self.data is None:
            del content[self.at :]
            content.extend(bytes(max(0, self.at - len(content))))
            return
        data = self.data[:length]
        content.extend(bytes(max(0, self.at + len(data) - len(content))))
        content[self.at : self.at + len(data)] = data


@dataclass(eq=False)
class Naming:
    """A new name, a rename or a deletion in a folder: `old` and `new` are the paths."""

    old: str
    new: str
    node: Node

    def folders(self) -> set[str]:
        return {str(Path(each).parent) for each in (self.old, self.new) if each}

    def apply(self, names: dict[str, Node]) -> None:
        if self.old:
            names.pop(self.old, None)
        if self.new:
            names[self.new] = self.node


class Disk:
    """A folder as processes see it, and as it is on the disk."""

    def __init__(self, folder: Path) -> None:
        self._root = str(folder)
        self._names: dict[str, Node] = {self._root: Node(is_folder=True)}
        for each in folder.rglob("*"):
            content = bytearray() if each.is_dir() else bytearray(each.read_bytes())
            self._names[str(each)] = Node(each.is_dir(), content, [], len(content))
        self._durable = dict(self._names)
        self._namings: list[Naming] = []
        self._syncing: dict[int, tuple[list[Change], list[Naming]]] = {}
        self._writing: dict[int, Change] = {}

    def _is_inside(self, path: str) -> bool:
        return path.startswith(self._root) and not path.endswith(("-shm", "(deleted)"))

    # -- what happens

    def begin(self, call: Call) -> None:
        """A call begins: what it writes may be on the disk from now on; what it syncs is what was written before."""
        path = call.path
        if not self._is_inside(path) or path not in self._names:
            return
        node = self._names[path]
        if call.name in UNSUPPORTED:
            raise NotImplementedError(f"{call.name} of {path}")
        if call.name in ("write", "pwrite64", "writev"):
            data = b"".join(call.strings)
            self._change(call, node, Change(_last_number(call) if call.name == "pwrite64" else node.size, data))
        elif call.name == "ftruncate":
            self._change(call, node, Change(_last_number(call), None))
        elif call.name in ("fsync", "fdatasync"):
            namings = [each for each in self._namings if path in each.folders()] if node.is_folder else []
            self._syncing[id(call)] = ([each for each in node.pending if each.is_done], namings)

    def _change(self, call: Call, node: Node, change: Change) -> None:
        node.pending.append(change)
        self._writing[id(call)] = change
        node.size = change.at if change.data is None else max(node.size, change.at + len(change.data))

    def end(self, call: Call) -> None:
        """A call has returned."""
        if (change := self._writing.pop(id(call), None)) is not None:
            change.is_done = True
        synced = self._syncing.pop(id(call), None)
        if call.result < 0:
            return
        if synced is not None:
            self._names.get(call.path, Node()).settle(synced[0])
            for naming in synced[1]:
                if naming in self._namings:
                    self._namings.remove(naming)
                    naming.apply(self._durable)
            return
        handler = {"openat": self._open, "creat": self._open, "mkdir": self._make, "mkdirat": self._make}.get(call.name)
        if handler is not None:
            handler(call)
        elif call.name.startswith("rename"):
            old, new = self._paths(call)
            if self._is_inside(old) or self._is_inside(new):
                self._name(Naming(old, new, self._names[old]))
        elif call.name in ("unlink", "unlinkat", "rmdir"):
            (path,) = self._paths(call)
            if self._is_inside(path) and path in self._names:
                self._name(Naming(path, "", self._names[path]))

    def _paths(self, call: Call) -> list[str]:
        """The paths of a call, which are absolute in the appliance, or relative to a descriptor."""
        descriptors = [_decode(path) for path in re.findall(r"(?:AT_FDCWD|\d+)<([^>]*)>", call.arguments)]
        texts = [each.decode() for each in call.strings]
        folders = descriptors if len(descriptors) >= len(texts) else [""] * len(texts)
        return [str(Path(folder, text)) for folder, text in zip(folders, texts, strict=False)]

    def _open(self, call: Call) -> None:
        (path,) = self._paths(call)
        if not self._is_inside(path):
            return
        if path not in self._names and "O_CREAT" in call.arguments:
            self._name(Naming("", path, Node()))
        elif "O_TRUNC" in call.arguments and path in self._names:
            self._names[path].pending.append(Change(0, None, is_done=True))
            self._names[path].size = 0

    def _make(self, call: Call) -> None:
        (path,) = self._paths(call)
        if self._is_inside(path):
            self._name(Naming("", path, Node(is_folder=True)))

    def _name(self, naming: Naming) -> None:
        naming.apply(self._names)
        self._namings.append(naming)

    # -- what a power cut leaves

    def cut(self, target: Path, chance: random.Random) -> None:
        """Write what is left of the folder when the power fails now; of what is not synced, by lot."""
        share = chance.choice((0.0, 0.3, 0.5, 0.8, 1.0))
        names = dict(self._durable)
        survivors = self._namings[: chance.randint(0, len(self._namings))] if chance.random() < 0.5 else self._namings
        for naming in survivors:
            if survivors is not self._namings or chance.random() < share:
                naming.apply(names)
        target.mkdir()
        for path in sorted(names):
            place = target / Path(path).relative_to(self._root)
            if not place.parent.is_dir():
                continue  # its folder is lost
            if names[path].is_folder:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(_remains(names[path], share, chance))


def _remains(node: Node, share: float, chance: random.Random) -> bytes:
    content = bytearray(node.durable)
    for change in node.pending:
        drawn = chance.random()
        if drawn < share:
            change.apply(content)
        elif drawn < share + 0.2 and share and change.data is not None and len(change.data) > SECTOR:
            change.apply(content, SECTOR * chance.randrange(1, -(-len(change.data) // SECTOR)))
    return bytes(content)
