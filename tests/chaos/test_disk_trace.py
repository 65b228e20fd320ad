"""A power cut keeps what was synced, and of the rest what chance leaves."""

import random
from pathlib import Path

import pytest

from .disk_trace import Disk, read_trace


def hex_of(text: str | bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in (text.encode() if isinstance(text, str) else text))


class Script:
    """Lines as strace writes them, about a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines = folder, list[str]()

    def _fd(self, name: str) -> str:
        return f"5<{hex_of(str(self.folder / name) if name else str(self.folder))}>"

    def create(self, name: str) -> None:
        path = hex_of(str(self.folder / name))
        self.lines.append(f'7 openat(AT_FDCWD<{hex_of("/work")}>, "{path}", O_WRONLY|O_CREAT, 0600) = {self._fd(name)}')

    def write(self, name: str, content: bytes, at: int) -> None:
        self.lines.append(f'7 pwrite64({self._fd(name)}, "{hex_of(content)}", {len(content)}, {at}) = {len(content)}')

    def sync(self, name: str) -> None:
        self.lines.append(f"7 fdatasync({self._fd(name)}) = 0")

    def rename(self, old: str, new: str) -> None:
        paths = [f'"{hex_of(str(self.folder / each))}"' for each in (old, new)]
        self.lines.append(f"7 rename({paths[0]}, {paths[1]}) = 0")

    def cuts(self, target: Path, count: int = 60) -> list[dict[str, bytes]]:
        """The folder after so many power cuts at the end."""
        trace = target / "trace"
        trace.write_text("\n".join(self.lines) + "\n")
        disk, chance, images = Disk(self.folder), random.Random(1), []  # noqa: S311
        for kind, call in read_trace(trace):
            (disk.begin if kind == "begin" else disk.end)(call)
        for number in range(count):
            image = target / str(number)
            disk.cut(image, chance)
            images.append({each.name: each.read_bytes() for each in image.iterdir()})
        return images


@pytest.fixture
def script(tmp_path: Path) -> Script:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "old").write_bytes(b"." * 2048)
    (tmp_path / "images").mkdir()
    return Script(folder)


def test_what_is_not_synced_is_there_or_lost_or_torn(script: Script, tmp_path: Path) -> None:
    script.write("old", b"x" * 2048, 0)
    counts = {each["old"].count(b"x") for each in script.cuts(tmp_path / "images", 200)}
    assert {0, 2048} < counts <= {0, 512, 1024, 1536, 2048}


def test_what_is_synced_is_there(script: Script, tmp_path: Path) -> None:
    script.write("old", b"x" * 2048, 0)
    script.sync("old")
    script.write("old", b"y" * 512, 2048)
    assert {each["old"][:2048] for each in script.cuts(tmp_path / "images")} == {b"x" * 2048}


def test_a_sync_keeps_only_what_was_written_before_it_began(script: Script, tmp_path: Path) -> None:
    script.lines.append(f"8 fsync({script._fd('old')} <unfinished ...>")
    script.write("old", b"x" * 512, 0)
    script.lines.append("8 <... fsync resumed>) = 0")
    assert {each["old"].count(b"x") for each in script.cuts(tmp_path / "images")} == {0, 512}


@pytest.mark.parametrize(("synced", "expected"), [(True, {("new", "old")}), (False, {("new", "old"), ("draft", "old"), ("old",)})])
def test_a_name_is_there_once_its_folder_is_synced(
    script: Script, tmp_path: Path, synced: bool, expected: set[tuple[str, ...]]
) -> None:
    script.create("draft")
    script.write("draft", b"x", 0)
    script.sync("draft")
    script.rename("draft", "new")
    if synced:
        script.sync("")
    assert {tuple(sorted(each)) for each in script.cuts(tmp_path / "images", 200)} >= expected
    assert not synced or all(each["new"] == b"x" for each in script.cuts(tmp_path, 20))
