"""Bodies that are files: written to the disk as they come, whatever their size; one file of a form, or the body itself."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from quart import request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData

from appliance.blobs.receiving import Receiver
from appliance.core.errors import InvalidRequest, PayloadTooLarge, ValidationFailed
from appliance.solutions.services import Services

from .routing import Upload

DRAIN_BYTES = 1 << 20
FIELD_BYTES = 1 << 16
_HELD_BYTES = 4 << 20  # a piece of the body, and the headers of a part
FILE_FIELD = "file"


class Reader(Protocol):
    """Takes the pieces of a body and says what they came to."""

    def feed(self, piece: bytes) -> None: ...
    def finish(self) -> Upload: ...


async def receive_upload(services: Services, *, form: bool) -> Upload:
    """The request's body as a file that belongs to the caller; a multipart one only where a `form` is expected."""
    most = services.config.limits.upload_mb << 20
    media, options = parse_options_header(request.headers.get("Content-Type", ""))
    loop = asyncio.get_running_loop()
    receiver = await loop.run_in_executor(services.threads, services.blobs.receiver)
    run = partial(loop.run_in_executor, services.threads)
    try:
        reader: Reader = Whole(receiver, media)
        if form and media.startswith("multipart/"):
            reader = Form(receiver, media, options.get("boundary", ""))
        if (request.content_length or 0) > most + DRAIN_BYTES:
            raise _too_large(most)
        size = 0
        async for piece in request.body:
            size += len(piece)
            if size <= most:
                await run(reader.feed, piece)
            elif size > most + DRAIN_BYTES:
                break
        if size > most:
            raise _too_large(most)
        return await run(reader.finish)
    except BaseException:
        receiver.discard()
        raise


def _too_large(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body may have at most {most >> 10} KiB", headers={"Connection": "close"})


class Whole:
    """The body is the file."""

    def __init__(self, receiver: Receiver, media_type: str) -> None:
        self._receiver = receiver
        self._media_type = media_type or None

    def feed(self, piece: bytes) -> None:
        self._receiver.write(piece)

    def finish(self) -> Upload:
        return Upload(self._receiver.finish(), None, self._media_type, {})


class Form:
    """A `multipart/form-data` body with one file, called `file`, and texts beside it."""

    def __init__(self, receiver: Receiver, media: str, boundary: str) -> None:
        if media != "multipart/form-data" or not boundary or not boundary.isascii():
            raise InvalidRequest("send a form as multipart/form-data with its boundary, or the file itself as the body")
        self._receiver = receiver
        self._decoder = MultipartDecoder(boundary.encode(), _HELD_BYTES, max_parts=100)
        self._file: File | None = None
        self._fields: dict[str, bytes] = {}
        self._take: Callable[[bytes], None] = self._ignore

    def feed(self, piece: bytes) -> None:
        for start in range(0, len(piece), _HELD_BYTES // 4):
            self._decode(piece[start : start + _HELD_BYTES // 4])

    def _decode(self, piece: bytes | None) -> None:
        for event in self._events(piece):
            if isinstance(event, File):
                self._begin_file(event)
            elif isinstance(event, Field):
                self._begin_field(event.name)
            elif isinstance(event, Data):
                self._take(event.data)

    def _events(self, piece: bytes | None) -> Iterator[object]:
        try:
            self._decoder.receive_data(piece)
            while not isinstance(event := self._decoder.next_event(), NeedData):
                yield event
                if isinstance(event, Epilogue):
                    return
        except RequestEntityTooLarge as error:
            raise PayloadTooLarge("the form has too many parts or too long headers; send the file and its few texts") from error
        except (ValueError, AttributeError) as error:  # bytes that make no sense to the decoder
            raise InvalidRequest("the body is not the multipart/form-data that its Content-Type says; send it again") from error

    def _begin_file(self, part: File) -> None:
        if part.name != FILE_FIELD:
            raise ValidationFailed(f"the form's file must be called {FILE_FIELD!r}", pointer=f"/{str(part.name)[:60]}")
        if self._file is not None:
            raise ValidationFailed("send one file at a time", pointer=f"/{FILE_FIELD}")
        self._file = part
        self._take = self._receiver.write

    def _begin_field(self, name: str | None) -> None:
        if not name or name in self._fields or name == FILE_FIELD:
            text = f"the form's field {str(name)[:60]!r} is given twice, has no name, or is a text where a file belongs"
            raise ValidationFailed(text, pointer=f"/{str(name or '')[:60]}")
        self._fields[name] = b""

        def take(data: bytes) -> None:
            self._fields[name] += data
            if sum(map(len, self._fields.values())) > FIELD_BYTES:
                raise PayloadTooLarge(f"the texts of a form may have at most {FIELD_BYTES >> 10} KiB together")

        self._take = take

    def _ignore(self, data: bytes) -> None:
        """What stands before the first part says nothing."""

    def finish(self) -> Upload:
        self._decode(None)
        if self._file is None:
            raise ValidationFailed(f"the form has no file; send it as the field {FILE_FIELD!r}", pointer=f"/{FILE_FIELD}")
        try:
            fields = {name: data.decode() for name, data in self._fields.items()}
        except UnicodeDecodeError as error:
            raise InvalidRequest("the texts of the form are not UTF-8") from error
        media_type = self._file.headers.get("Content-Type")
        return Upload(self._receiver.finish(), self._file.filename, media_type, fields)
