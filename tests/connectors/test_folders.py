"""Folders of this machine: only what the operator lists, each tenant in its own, and no way out of them."""

import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.connectors.contract import AddressNotAllowed, ConfigError, ConnectorError, Rejected, TransientError
from appliance.connectors.folders import AllowedFolders
from appliance.connectors.jail import Jail, rename_after_check
from appliance.core.errors import ConfigInvalid

FAR = 1e12


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder that is allowed, with a secret beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("secret")
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def jail(base: Path, inner: str = "", *, read_only: bool = False, quota: int = 0, deadline: float = FAR) -> Jail:
    return Jail(str(base), inner, read_only=read_only, quota=quota, deadline=deadline)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- the operator's list


def test_only_what_is_listed_may_be_used() -> None:
    folders = AllowedFolders.of(["/srv/in", "/srv/catalogue:ro"])
    assert folders.open("acme", "/srv/in/a/b/", FAR) == Jail("/srv/in", "a/b", read_only=False, quota=0, deadline=FAR)
    assert folders.open("acme", "/srv/catalogue", FAR).read_only
    for path in ("/srv", "/srv/inner", "/etc", "//srv/in"):
        with pytest.raises(AddressNotAllowed, match=r"folders\.allow"):
            folders.open("acme", path, FAR)
    for path in ("srv/in", "/", "", "/srv/in/../etc", "/srv/./in", "/srv/in\0"):
        with pytest.raises(ConfigError):
            folders.open("acme", path, FAR)


def test_a_tenant_reaches_its_own_part_only() -> None:
    folders = AllowedFolders.of(["/srv/{tenant}/in"])
    assert folders.open("acme", "/srv/acme/in/x", FAR).base == "/srv/acme/in"
    for path in ("/srv/globex/in", "/srv/acme", "/srv/{tenant}/in"):
        with pytest.raises(AddressNotAllowed):
            folders.open("acme", path, FAR)


@pytest.mark.parametrize("entry", ["", "/", "srv", "/srv/../etc", "/srv/", "/srv/x{tenant}", "/srv/{user}", "/srv\0"])
def test_an_invalid_entry_is_refused(entry: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"folders\.allow"):
        AllowedFolders.of([entry])


@pytest.mark.parametrize("entry", ["/srv", "/srv/gos", "/srv/gos/blobs", "/{tenant}", "/srv/{tenant}/x:ro"])
def test_the_appliances_own_data_cannot_be_allowed(entry: str) -> None:
    with pytest.raises(ConfigInvalid, match="own folder"):
        AllowedFolders.of([entry], never=[Path("/srv/gos")])
    AllowedFolders.of(["/srv2", "/srv/goss"], never=[Path("/srv/gos")])


def test_a_link_to_the_appliances_own_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(ConfigInvalid, match="own folder"):
        AllowedFolders.of([str(tmp_path / "link")], never=[tmp_path / "data"])


def test_entries_within_each_other_are_refused() -> None:
    for entries in (["/srv/in", "/srv/in/old:ro"], ["/srv/{tenant}", "/srv/shared"], ["/srv/in", "/srv/in:ro"]):
        with pytest.raises(ConfigInvalid, match="overlap"):
            AllowedFolders.of(entries)


# -- the jail


USES: list[Callable[[Jail, str], object]] = [
    lambda it, path: list(it.scan(path)),
    lambda it, path: it.open(path).close(),
    lambda it, path: it.stat(f"{path}/file"),
    lambda it, path: it.open(f"{path}/file").close(),
    lambda it, path: it.write(f"{path}/new", [b"x"], "draft"),
    lambda it, path: it.delete(f"{path}/file"),
    lambda it, path: it.move(f"{path}/file", "got"),
    lambda it, path: it.move("mine", f"{path}/new"),
    lambda it, path: it.make_folder(f"{path}/new"),
    lambda it, path: it.place(f"{path}/file", for_writing=False),
    lambda it, path: it.place(path, for_writing=False),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("target", ["../outside", "/etc", "."])
def test_no_link_is_followed(base: Path, use: Callable[[Jail, str], object], target: str) -> None:
    (base / "mine").write_text("mine")
    (base / "link").symlink_to(target)
    with pytest.raises(Rejected):
        use(jail(base), "link")
    assert names(base) == ["link", "mine"]
    assert names(base.parent / "outside") == ["file"]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("path", ["..", "../outside", "/etc", "a/../..", "./a", "a//b", "a\0"])
def test_no_path_leaves_the_folder(base: Path, use: Callable[[Jail, str], object], path: str) -> None:
    (base / "mine").write_text("mine")
    with pytest.raises(ConfigError):
        use(jail(base), path)
    assert names(base.parent / "outside") == ["file"]


def test_a_link_to_a_file_is_not_opened(base: Path) -> None:
    (base / "link").symlink_to("../outside/file")
    with pytest.raises(Rejected, match="link"):
        jail(base).open("link")


def test_a_root_that_became_a_link_is_not_followed(base: Path) -> None:
    (base / "root").symlink_to(base.parent / "outside")
    with pytest.raises(Rejected, match="link"):
        list(jail(base, "root").scan())


def test_links_themselves_are_listed_replaced_and_deleted(base: Path) -> None:
    (base / "a").symlink_to(base.parent / "outside" / "file")
    (base / "b").symlink_to(base.parent / "outside")
    it = jail(base)
    assert sorted((each.name, each.kind, each.size) for each in it.scan()) == [("a", "other", 0), ("b", "other", 0)]
    it.write("a", [b"new"], "draft")
    assert it.delete("b")
    assert (names(base), (base / "a").read_text(), (base / "a").is_symlink()) == (["a"], "new", False)
    assert (base.parent / "outside" / "file").read_text() == "secret"


def test_only_regular_files_are_opened(base: Path) -> None:
    os.mkfifo(base / "pipe")
    (base / "folder").mkdir()
    it = jail(base)
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryDirectory(dir="/tmp") as short:
        listener.bind(f"{short}/s")
        os.rename(f"{short}/s", base / "socket")  # noqa: PTH104 - a socket's own address must be short
        for name in ("pipe", "folder", "socket"):
            with pytest.raises(Rejected):
                it.open(name)
    assert {each.name: each.kind for each in it.scan()} == {"pipe": "other", "folder": "folder", "socket": "other"}
    with pytest.raises(Rejected):
        it.write("folder", [b"x"], "draft")
    assert names(base) == ["folder", "pipe", "socket"]


def test_files_are_written_atomically(base: Path) -> None:
    (base / "a").write_text("old")
    seen = []

    def parts() -> object:
        yield b"n"
        seen.append((names(base), (base / "a").read_text()))
        yield b"ew"

    assert jail(base).write("a", parts(), "draft") == 3  # type: ignore[arg-type]
    assert (seen, names(base), (base / "a").read_text()) == ([(["a", "draft"], "old")], ["a"], "new")

    def broken() -> object:
        yield b"x"
        raise TransientError("the source broke off")

    with pytest.raises(TransientError):
        jail(base).write("a", broken(), "draft")  # type: ignore[arg-type]
    assert (names(base), (base / "a").read_text()) == (["a"], "new")


def test_a_file_gets_the_permissions_of_its_folder(base: Path) -> None:
    before = os.umask(0o077)
    try:
        for mode in (0o770, 0o2755, 0o700):
            base.chmod(mode)
            jail(base).write("a", [b"x"], "draft")
            assert (base / "a").stat().st_mode & 0o7777 == mode & 0o666
    finally:
        os.umask(before)


def test_a_link_in_place_of_the_draft_is_replaced_not_followed(base: Path) -> None:
    (base / "draft").symlink_to(base.parent / "outside" / "file")
    jail(base).write("a", [b"new"], "draft")
    assert ((base / "a").read_text(), (base.parent / "outside" / "file").read_text()) == ("new", "secret")


def test_a_move_never_overwrites(base: Path) -> None:
    for name in "ab":
        (base / name).write_text(name)
    (base / "empty").mkdir()
    (base / "folder").mkdir()
    it = jail(base)
    for source, target in (("a", "b"), ("folder", "empty"), ("a", "empty")):
        with pytest.raises(Rejected, match="already exists"):
            it.move(source, target)
    with pytest.raises(Rejected, match="does not exist"):
        it.move("x", "y")
    it.move("a", "folder/c")
    assert (names(base), names(base / "folder")) == (["b", "empty", "folder"], ["c"])


def test_without_an_atomic_rename_the_target_is_checked_first(base: Path) -> None:
    for name in "ab":
        (base / name).write_text(name)
    folder = os.open(base, os.O_RDONLY)
    try:
        with pytest.raises(FileExistsError):
            rename_after_check(folder, "a", folder, "b")
        rename_after_check(folder, "a", folder, "c")
    finally:
        os.close(folder)
    assert {path.name: path.read_text() for path in base.iterdir()} == {"b": "b", "c": "a"}


def test_folders_are_created_and_only_empty_ones_removed(base: Path) -> None:
    it = jail(base)
    assert [it.make_folder("a/b") for _ in range(2)] == [True, False]
    with pytest.raises(Rejected, match="not empty"):
        it.delete("a")
    assert [it.delete("a/b"), it.delete("a/b"), it.delete("a")] == [True, False, True]


def test_a_read_only_folder_refuses_changes(base: Path) -> None:
    (base / "a").write_text("x")
    it = jail(base, read_only=True)
    assert (jail(base).writable, it.writable) == (True, False)
    for act in (
        lambda: it.write("b", [b"x"], "draft"),
        lambda: it.delete("a"),
        lambda: it.move("a", "b"),
        lambda: it.make_folder("b"),
        lambda: it.place("a", for_writing=True),
    ):
        with pytest.raises(Rejected, match="is read-only"):
            act()
    assert it.place("a", for_writing=False) == str(base / "a")
    assert names(base) == ["a"]


def test_the_quota_counts_everything_in_the_operators_folder(base: Path) -> None:
    (base / "deep").mkdir()
    (base / "deep" / "a").write_bytes(b"x" * 60)
    (base / "link").symlink_to(base.parent)
    it = jail(base, "deep", quota=100)
    it.write("b", [b"x" * 40], "draft")
    with pytest.raises(Rejected, match="quota"):
        it.write("c", [b"x"], "draft")
    assert names(base / "deep") == ["a", "b"]
    assert it.delete("a")
    it.write("c", [b"x" * 60], "draft")


def test_the_quota_holds_below_a_link_of_the_operators_own(base: Path) -> None:
    (base.parent / "way").symlink_to(base)
    (base / "a").write_bytes(b"x" * 60)
    with pytest.raises(Rejected, match="quota"):
        jail(base.parent / "way", quota=100).write("b", [b"x" * 41], "draft")


def test_the_deadline_holds(base: Path) -> None:
    it = jail(base, deadline=time.monotonic())
    (base / "a").write_text("x")
    with pytest.raises(TransientError):
        list(it.scan())
    with pytest.raises(TransientError):
        it.write("b", [b"x"], "draft")
    assert names(base) == ["a"]


def test_a_name_that_is_not_utf_8_is_listed_but_not_as_a_file(base: Path) -> None:
    with open(os.fsencode(base) + b"/\xff.csv", "wb"):  # noqa: PTH123 - a name in bytes
        pass
    assert [(each.name, each.kind) for each in jail(base).scan()] == [("\ufffd.csv", "other")]


def test_a_missing_base_is_an_error(base: Path) -> None:
    with pytest.raises(Rejected, match="does not exist"):
        list(jail(base / "gone").scan())


def _write(it: Jail, path: str) -> object:
    return it.write(path, [b"x"], "draft")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["..", ".", "", "/", "link", "sub", "a", "\0", "~", "..\\", "%2e%2e"]), min_size=1, max_size=6))
def test_whatever_the_path_nothing_outside_is_touched(parts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        (top / "in" / "sub").mkdir(parents=True)
        (top / "in" / "link").symlink_to("..")
        (top / "in" / "sub" / "link").symlink_to(top)
        (top / "secret").write_text("secret")
        it, path = jail(top / "in"), "/".join(parts)
        for use in (*USES, _write, Jail.delete):
            try:
                use(it, path)
            except ConnectorError:
                continue
        assert names(top) == ["in", "secret"]
        assert (top / "secret").read_text() == "secret"
