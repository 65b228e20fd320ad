"""Stores contents in an S3-compatible bucket, one object each, complete or absent."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.store import S3Store

from appliance.core.config.sections import Blobs as Settings
from appliance.core.errors import ConfigInvalid, Gone, Overloaded
from appliance.core.pools import BUCKET, open_pool
from appliance.core.sentences import Sentence

from .bucket_errors import refused, remote_errors
from .local import LocalPlaces
from .ownership import MARKER, claim, read_marker
from .pieces import Pieces, WindowPieces
from .receiving import Receiver
from .signing import AddressSigner

if TYPE_CHECKING:  # it exists for type checkers only
    from obstore.store import ClientConfig, S3Config

PART_BYTES, PARTS_AT_ONCE = 8 << 20, 2  # held in memory per upload; a bucket accepts 10,000 parts
WINDOW_BYTES = 4 << 20  # held in memory per reader


def open_bucket(settings: Settings, section: str = "blobs", *, retries: int = 3) -> S3Store:
    """The bucket, without connecting yet; without keys, those of the environment or the machine's role are used.

    `section` is the section of the configuration, for errors.
    """
    config: S3Config = {
        "region": settings.region,
        "virtual_hosted_style_request": not settings.path_style,
        "disable_bulk_delete": True,  # not every server supports it
    }
    if settings.endpoint:
        config["endpoint"] = settings.endpoint
    if settings.key_id:
        config |= {"access_key_id": settings.key_id, "secret_access_key": settings.secret_key}
    return S3Store(
        settings.bucket,
        prefix=settings.prefix.strip("/") or None,
        config=config,
        client_options=_client_options(settings, section),
        retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=60)},
    )


def _client_options(settings: Settings, section: str) -> "ClientConfig":
    options: ClientConfig = {
        "allow_http": settings.endpoint.startswith("http://"), "connect_timeout": "5s", "timeout": "120s",
    }  # fmt: skip
    if settings.ca_file:
        try:
            options["root_certificate"] = Path(settings.ca_file).read_bytes()
        except OSError as error:
            message = Sentence(
                "%(section)s.ca_file cannot be read (%(strerror)s); set a PEM file with the certificate authority of "
                "%(section)s.endpoint",
                section=section, strerror=error.strerror,
            )
            raise ConfigInvalid(message) from error
    return options


class S3Places:
    """The interface of `LocalPlaces` for a bucket; incoming files are in a local folder until they are adopted.

    Every request is signed with the sha256 of its body, so that the bucket refuses data changed in transit.  Bytes are read in
    windows, each a request of its own, so that a slow reader holds no connection; if the content is deleted meanwhile, it
    gets Gone.

    With an `installation`, the bucket must belong to it: it is claimed before anything is written, looked up or deleted, and
    again before each garbage collection (BucketNotOwned).
    """

    def __init__(self, bucket: S3Store, folder: Path, installation: str = "", signer: AddressSigner | None = None) -> None:
        self._bucket, self.signer = bucket, signer
        self._incoming = LocalPlaces(folder)
        self._installation = installation
        self._claimed = not installation

    def claim(self) -> None:
        """Claims the bucket or confirms the claim, without a cache; raises BucketNotOwned or Overloaded."""
        if not self._installation:
            return
        try:
            with remote_errors():
                claim(self._bucket, self._installation)
        except FileNotFoundError as error:
            raise refused("the bucket of the blob store does not return what was just stored", error) from error
        self._claimed = True

    def _ensure_claimed(self) -> None:
        if not self._claimed:
            self.claim()

    def receiver(self) -> Receiver:
        """A receiver for incoming bytes."""
        return self._incoming.receiver()

    def adopt(self, path: Path, place: str) -> None:
        """Uploads a received file as the content of the place, in parts if it is large; durable when this returns."""
        self._ensure_claimed()
        with path.open("rb") as file:
            try:
                with remote_errors():
                    obstore.put(self._bucket, place, file, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
            except FileNotFoundError as error:
                raise refused("the bucket of the blob store does not exist", error) from error
        path.unlink()

    def adopt_all(self, files: Sequence[tuple[Path, str]]) -> None:
        """The same for many files, several at a time; all are tried even if one fails."""
        self._ensure_claimed()
        with open_pool(BUCKET) as threads:
            for done in [threads.submit(self.adopt, path, place) for path, place in files]:
                done.result()

    def holds(self, place: str, size: int) -> bool:
        """Whether the place has content of this size."""
        self._ensure_claimed()
        try:
            with remote_errors():
                return obstore.head(self._bucket, place)["size"] == size
        except FileNotFoundError:
            return False

    def read(self, place: str, start: int, end: int) -> Pieces:
        """Reads the bytes from `start` up to `end` in pieces; raises FileNotFoundError before the first."""
        return WindowPieces(partial(self._later_window, place), self._window(place, start, end), start, end)

    def _later_window(self, place: str, start: int, end: int) -> bytes:
        try:
            return self._window(place, start, end)
        except FileNotFoundError as error:
            raise Gone("the content was deleted while it was read") from error

    def _window(self, place: str, start: int, end: int) -> bytes:
        with remote_errors():
            if start >= end:
                obstore.head(self._bucket, place)
                return b""
            return bytes(obstore.get_range(self._bucket, place, start=start, end=min(end, start + WINDOW_BYTES)))

    def delete(self, place: str) -> None:
        """Deletes the content of the place, if there is any."""
        self._ensure_claimed()
        try:
            with remote_errors():
                obstore.delete(self._bucket, place)
        except FileNotFoundError:
            return

    def walk(self) -> Iterator[tuple[str, int]]:
        """Yields every place with content and when it was written (epoch ms by the bucket's clock)."""
        self.claim()
        with remote_errors():
            for page in obstore.list(self._bucket):
                for entry in page:
                    if entry["path"] != MARKER:
                        yield entry["path"], int(entry["last_modified"].timestamp() * 1000)

    def delete_incoming(self, before_ms: int) -> int:
        """Deletes incoming files last written before this moment; returns their number."""
        return self._incoming.delete_incoming(before_ms)

    def delete_copies(self, find_named: Callable[[Sequence[str]], set[str]]) -> None:
        """Deletes nothing: copies are kept by `CachedPlaces`."""


def owner_of(settings: Settings) -> str | None:
    """The installation that owns the bucket; None without an owner; raises a coded error when the bucket cannot be read."""
    with remote_errors():
        return read_marker(open_bucket(settings))


def probe(settings: Settings, folder: Path) -> None:
    """Checks the bucket by storing, reading and deleting a small content; raises a coded error naming what failed."""
    places, place, content = S3Places(open_bucket(settings), folder), f"probe/{secrets.token_hex(16)}", secrets.token_bytes(64)
    receiver = places.receiver()
    receiver.write(content)
    sent = receiver.finish(durable=False)
    try:
        places.adopt(sent.path, place)
    finally:
        sent.discard()
    try:
        received = b"".join(places.read(place, 0, len(content)))
    except FileNotFoundError as error:
        raise refused("the bucket of the blob store does not list what was just stored", error) from error
    finally:
        places.delete(place)
    if received != content:
        raise Overloaded("the bucket of the blob store returned other bytes than were stored")
