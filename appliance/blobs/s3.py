"""Places of bytes in a bucket that speaks S3: one object each, complete or absent."""

import logging
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from appliance.core.errors import ConfigInvalid, Gone, Overloaded, StorageFull
from appliance.core.sections import Blobs as Settings
from appliance.core.sentences import Sentence

from .local import LocalPlaces
from .ownership import MARKER, claim, read_marker
from .pieces import Pieces, WindowPieces
from .receiving import Receiver

if TYPE_CHECKING:  # it exists for type checkers only
    from obstore.store import ClientConfig, S3Config

log = logging.getLogger(__name__)
PART_BYTES, PARTS_AT_ONCE = 8 << 20, 2  # what one upload keeps in memory; a bucket takes 10,000 parts
PUT_AT_ONCE = 4  # of many contents
WINDOW_BYTES = 4 << 20  # what one reader keeps in memory
TOLD = 300  # characters of what the other side says
# What obstore has no classes for, or not with every request.
_NO_BUCKET, _CLOSED = "NoSuchBucket", ("401 Unauthorized", "403 Forbidden", "AccessDenied", "SignatureDoesNotMatch")
_FULL = ("QuotaExceeded", "InsufficientStorage", "StorageFull", "507 ")


def open_bucket(settings: Settings) -> S3Store:
    """The bucket of the settings; nothing is sent yet.  Without keys in them, those of the environment or of the machine's role."""
    config: S3Config = {
        "region": settings.region,
        "virtual_hosted_style_request": not settings.path_style,
        "disable_bulk_delete": True,  # not every server knows it
    }
    if settings.endpoint:
        config["endpoint"] = settings.endpoint
    if settings.key_id:
        config |= {"access_key_id": settings.key_id, "secret_access_key": settings.secret_key}
    return S3Store(
        settings.bucket,
        prefix=settings.prefix.strip("/") or None,
        config=config,
        client_options=_client_options(settings),
        retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=60)},
    )


def _client_options(settings: Settings) -> "ClientConfig":
    options: ClientConfig = {
        "allow_http": settings.endpoint.startswith("http://"), "connect_timeout": "5s", "timeout": "120s",
    }  # fmt: skip
    if settings.ca_file:
        try:
            options["root_certificate"] = Path(settings.ca_file).read_bytes()
        except OSError as error:
            told = Sentence(
                "blobs.ca_file cannot be read (%(strerror)s): name a PEM file with the authority of blobs.endpoint",
                strerror=error.strerror,
            )
            raise ConfigInvalid(told) from error
    return options


class S3Places:
    """The contract of `LocalPlaces`, kept by a bucket; what arrives still lies in a local folder until it is adopted.

    Every request is signed with the sha256 of what it carries, so that the bucket refuses what was changed on its way.
    Bytes are read in windows, each a request of its own: a slow reader holds no connection open, and one that
    is not done when the content is collected is told so (Gone).

    With an `installation` the bucket must be its own: it is claimed before anything is put, counted on or deleted, and
    anew whenever somebody looks for what is to be deleted (BucketTaken).
    """

    def __init__(self, bucket: S3Store, folder: Path, installation: str = "") -> None:
        self._bucket = bucket
        self._arriving = LocalPlaces(folder)
        self._installation = installation
        self._claimed = not installation

    def claim(self) -> None:
        """See that the bucket belongs to this installation, whatever was seen before; BucketTaken, Overloaded."""
        if not self._installation:
            return
        try:
            with _remote_errors():
                claim(self._bucket, self._installation)
        except FileNotFoundError as error:
            raise _refused("the bucket of the blob store does not keep what was just put", error) from error
        self._claimed = True

    def _own(self) -> None:
        if not self._claimed:
            self.claim()

    def receiver(self) -> Receiver:
        """Somewhere to write bytes that are arriving."""
        return self._arriving.receiver()

    def adopt(self, path: Path, place: str) -> None:
        """Make the received file the content of the place, in parts when it is large; durable when this returns."""
        self._own()
        with path.open("rb") as file:
            try:
                with _remote_errors():
                    obstore.put(self._bucket, place, file, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
            except FileNotFoundError as error:
                raise _refused("the bucket of the blob store does not exist", error) from error
        path.unlink()

    def adopt_all(self, arrivals: Sequence[tuple[Path, str]]) -> None:
        """Likewise for many, some of them at a time; all have been tried when one is refused."""
        self._own()
        with ThreadPoolExecutor(PUT_AT_ONCE, thread_name_prefix="bucket") as threads:
            for done in [threads.submit(self.adopt, path, place) for path, place in arrivals]:
                done.result()

    def holds(self, place: str, size: int) -> bool:
        """Whether the place has content of this size."""
        self._own()
        try:
            with _remote_errors():
                return obstore.head(self._bucket, place)["size"] == size
        except FileNotFoundError:
            return False

    def read(self, place: str, start: int, end: int) -> Pieces:
        """The bytes from `start` up to `end`, a piece at a time; FileNotFoundError before the first."""
        return WindowPieces(partial(self._later_window, place), self._window(place, start, end), start, end)

    def _later_window(self, place: str, start: int, end: int) -> bytes:
        try:
            return self._window(place, start, end)
        except FileNotFoundError as error:
            raise Gone("the content was deleted while it was read") from error

    def _window(self, place: str, start: int, end: int) -> bytes:
        with _remote_errors():
            if start >= end:
                obstore.head(self._bucket, place)
                return b""
            return bytes(obstore.get_range(self._bucket, place, start=start, end=min(end, start + WINDOW_BYTES)))

    def delete(self, place: str) -> None:
        """The place is empty afterwards; it may be so already."""
        self._own()
        try:
            with _remote_errors():
                obstore.delete(self._bucket, place)
        except FileNotFoundError:
            return

    def walk(self) -> Iterator[tuple[str, int]]:
        """Every place with content and the milliseconds of its writing, by the clock of the bucket."""
        self.claim()
        with _remote_errors():
            for found in obstore.list(self._bucket):
                for each in found:
                    if each["path"] != MARKER:
                        yield each["path"], int(each["last_modified"].timestamp() * 1000)

    def forget_incoming(self, before_ms: int) -> int:
        """Delete what began to arrive, and was last written before this moment; answers how many files."""
        return self._arriving.forget_incoming(before_ms)


def owner_of(settings: Settings) -> str | None:
    """The installation that the bucket belongs to; None when nobody has come yet, an error with a code when it cannot tell."""
    with _remote_errors():
        return read_marker(open_bucket(settings))


def probe(settings: Settings, folder: Path) -> None:
    """Put a small content, read it and delete it again; an error with a code says what failed."""
    places, place, content = S3Places(open_bucket(settings), folder), f"probe/{secrets.token_hex(16)}", secrets.token_bytes(64)
    receiver = places.receiver()
    receiver.write(content)
    arrived = receiver.finish(durable=False)
    try:
        places.adopt(arrived.path, place)
    finally:
        arrived.discard()
    try:
        found = b"".join(places.read(place, 0, len(content)))
    except FileNotFoundError as error:
        raise _refused("the bucket of the blob store does not show what was just put", error) from error
    finally:
        places.delete(place)
    if found != content:
        raise Overloaded("the bucket of the blob store answers other bytes than were put")


@contextmanager
def _remote_errors() -> Iterator[None]:
    """What the bucket says as our own errors; an object that is missing stays FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, BaseError) as error:
        said = str(error)
        if _NO_BUCKET in said:
            raise _refused("the bucket of the blob store does not exist", error) from error
        if isinstance(error, FileNotFoundError):
            raise
        if any(word in said for word in _FULL):
            raise StorageFull("the bucket of the blob store is full; free space and try again") from error
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or any(word in said for word in _CLOSED):
            raise _refused("the bucket of the blob store refuses the appliance", error) from error
        raise _refused("the bucket of the blob store cannot be reached or failed", error) from error


def _refused(what: str, error: Exception) -> Overloaded:
    log.error(what, extra={"fields": {"error": " ".join(str(error).split())[:TOLD]}})
    return Overloaded(
        Sentence("%(what)s; try again, and let whoever runs the appliance see `gos doctor`", what=what),
        headers={"Retry-After": "30"},
    )
