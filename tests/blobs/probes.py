"""Direct access to the files or objects of a place store, to inspect and damage them."""

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import obstore

from appliance.blobs.local import LocalPlaces
from appliance.blobs.s3 import S3Places, open_bucket
from appliance.blobs.service import Places
from appliance.core.config.sections import Blobs as Settings


class StoreProbe(Protocol):
    """A place store and the names of its stored and incoming contents."""

    places: Places

    def names(self) -> list[str]: ...
    def damage(self, name: str, content: bytes | None) -> None: ...


class LocalProbe:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.places: Places = LocalPlaces(folder)

    def names(self) -> list[str]:
        return files_in(self._folder)

    def damage(self, name: str, content: bytes | None) -> None:
        """Other content, or none."""
        if content is None:
            (self._folder / name).unlink()
        else:
            (self._folder / name).write_bytes(content)


class BucketProbe:
    """An unused prefix of the bucket."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._folder = folder
        self.settings = replace(settings, prefix=f"tests/{secrets.token_hex(6)}")
        self._bucket = open_bucket(self.settings)
        self.places: Places = S3Places(self._bucket, folder)

    def names(self) -> list[str]:
        return sorted([each["path"] for page in obstore.list(self._bucket) for each in page] + files_in(self._folder))

    def damage(self, name: str, content: bytes | None) -> None:
        """Other content, or none."""
        if content is None:
            obstore.delete(self._bucket, name)
        else:
            obstore.put(self._bucket, name, content)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
