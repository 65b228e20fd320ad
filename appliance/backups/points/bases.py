"""Makes a base: the database as it is, page by page, and the files of the data folder that a restore needs."""

import secrets
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from appliance import __version__
from appliance.backups.creation import DATABASE, FILES, OPEN_FILES, SECRET_FILES, files_of
from appliance.backups.locked_folders import locked_folder
from appliance.backups.parts import PIECE, new_file
from appliance.backups.problems import ShouldStop, full_disks, refuse_stopping
from appliance.backups.snapshots import open_snapshot, schema_number
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import StorageFull
from appliance.core.sentences import Sentence

from .archives import CHAINS, Archive, base_name
from .contents import DRAFTS, ContentShipper

FORMAT, KIND = 1, "point"
_PAGES_AT_ONCE = 256
_SPARE_BYTES = 256 << 20  # stay free for the appliance, which writes meanwhile


@dataclass(frozen=True)
class BaseRequest:
    """A base of a chain as of `time`, read through `copy`, a connection in a transaction; `epoch` is that of the log then."""

    chain: str
    time: int
    epoch: int
    copy: sqlite3.Connection


class BaseMaker:
    """Makes the bases of an archive, each with every content that it names."""

    def __init__(self, config: Config, archive: Archive, contents: ContentShipper, should_stop: ShouldStop) -> None:
        self._config, self._archive, self._contents, self._should_stop = config, archive, contents, should_stop

    def make(self, request: BaseRequest) -> int:
        """Store a base and return its size.  Closes the connection of the request."""
        config, archive = self._config, self._archive
        stored_name = f"{archive.path}/{CHAINS}/{request.chain}/{base_name(request.time, request.epoch)}"
        drafts = config.data / DRAFTS
        drafts.mkdir(exist_ok=True, mode=0o700)
        with locked_folder(drafts / f"base-{secrets.token_hex(4)}") as folder:
            _refuse_full(request, drafts)
            with closing(request.copy), full_disks(), closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as file:
                file.execute("PRAGMA synchronous=OFF")  # a temporary file
                # Its pages keep their places, which the log names.
                request.copy.backup(file, pages=_PAGES_AT_ONCE, progress=lambda *_: refuse_stopping(self._should_stop))
            with open_snapshot(folder / DATABASE, self._should_stop) as file:
                manifest = self._manifest(request) | {"schema": schema_number(file)}
                self._contents.ship_all(file, self._should_stop)
                self._contents.ship_list(stored_name, file)
            names = (*OPEN_FILES, *(SECRET_FILES if archive.is_encrypted else ()))
            draft = folder / base_name(request.time, request.epoch)
            with new_file(draft, config.backup.passphrase if archive.is_encrypted else None) as parts:
                stored = [parts.add_file(DATABASE, folder / DATABASE)]
                paths = files_of(config.data, names)
                stored += [parts.add_file(f"{FILES}{path.relative_to(config.data).as_posix()}", path) for path in paths]
                parts.finish(manifest | {"parts": [vars(each) for each in stored]})
            with draft.open("rb") as content:
                return archive.store.put(stored_name, iter(partial(content.read, PIECE), b""))

    def _manifest(self, request: BaseRequest) -> dict[str, Any]:
        archive, data = self._archive, self._config.data
        left_out = [] if archive.is_encrypted else [name for name in SECRET_FILES if (data / name).exists()]
        return {
            "format": FORMAT, "kind": KIND, "version": __version__, "made_at": clock.rfc3339(request.time),
            "installation": archive.installation, "encrypted": archive.is_encrypted, "left_out": left_out,
            "chain": request.chain, "epoch": request.epoch, "time": request.time,
        }  # fmt: skip


def _refuse_full(request: BaseRequest, drafts: Path) -> None:
    """StorageFull unless two copies of the database fit on the disk, one of them packed."""
    ((size,),) = request.copy.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
    free = shutil.disk_usage(drafts).free
    if 2 * size > free - _SPARE_BYTES:
        raise StorageFull(Sentence(
            "a base of the points needs %(needed)s MiB on the disk of the data folder; %(free)s MiB are free, of which "
            "%(spare)s MiB must stay. Free some space", needed=2 * size >> 20, free=free >> 20, spare=_SPARE_BYTES >> 20,
        ))  # fmt: skip
