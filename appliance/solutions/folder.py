"""Reads and writes solution folders on disk, for the command line and the starter."""

from collections.abc import Mapping
from pathlib import Path

from appliance.core.errors import NotFound, PayloadTooLarge, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.solutions.archive import LARGEST_BYTES, check_path
from appliance.solutions.definition import ROOT_FILE, is_ignored

LARGEST_COUNT = 10_000


def read_folder(folder: Path) -> dict[str, bytes]:
    """The files of a solution folder by path, without ignored ones.

    NotFound if it is not a solution folder; ValidationFailed for a link, which could point anywhere.
    """
    if not (folder / ROOT_FILE).is_file():
        raise NotFound(Sentence("%(folder)s is not a solution folder: it has no %(root_file)s", folder=folder, root_file=ROOT_FILE))
    files: dict[str, bytes] = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if is_ignored(name):
            continue
        if path.is_symlink():
            raise ValidationFailed(Sentence("%(name)s is a link; a solution may only contain files", name=name))
        if not path.is_file():
            continue
        size += path.stat().st_size
        if size > LARGEST_BYTES or len(files) >= LARGEST_COUNT:
            raise PayloadTooLarge(Sentence(
                "%(folder)s has more than %(largest_bytes)s MiB or %(largest_count)s files",
                folder=folder, largest_bytes=LARGEST_BYTES >> 20, largest_count=LARGEST_COUNT,
            ))
        files[check_path(name)] = path.read_bytes()
    return files


def read_test_files(folder: Path) -> dict[str, bytes]:
    """The files that tests need, by path: tests/, and sample/ for their input; ValidationFailed for a link."""
    files: dict[str, bytes] = {}
    size = 0
    for top in ("tests", "sample"):
        for path in sorted((folder / top).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_symlink():
                raise ValidationFailed(Sentence("%(name)s is a link; tests may only be files", name=name))
            if path.is_file() and path.suffix in (".yaml", ".json"):
                size += path.stat().st_size
                if size > LARGEST_BYTES:
                    raise PayloadTooLarge(Sentence(
                        "the tests of %(folder)s have more than %(largest_bytes)s MiB",
                        folder=folder, largest_bytes=LARGEST_BYTES >> 20,
                    ))
                files[name] = path.read_bytes()
    return files


def write_folder(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write the files into a folder, creating it if needed; answers the paths whose content is new or changed."""
    changed = []
    for name, content in sorted(files.items()):
        path = folder / check_path(name)
        if any(part.is_symlink() for part in (path, *path.parents) if part.is_relative_to(folder) and part != folder):
            raise ValidationFailed(Sentence("%(name)s would be written through a link; remove it first", name=name))
        if path.is_file() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        changed.append(name)
    return changed
