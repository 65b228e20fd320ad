"""Receives uploads: the body, or the one file of a form, is written to disk as it arrives."""

from collections.abc import Callable
from typing import Protocol

from werkzeug.http import parse_options_header

from appliance.blobs import Receiver
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.web import DRAIN_BYTES, FormLimits, FormReader, Request, Services, bounded, in_thread, too_large

from .routing import Upload

MOST_PARTS, FIELD_BYTES = 100, 1 << 16
FILE_FIELD = "file"


class Reader(Protocol):
    """Reads a body piece by piece into an Upload."""

    def feed(self, body: bytes) -> None: ...
    def end(self) -> Upload: ...
    def discard(self) -> None: ...


async def receive_upload(services: Services, request: Request, *, form: bool) -> Upload:
    """Receive the request's body as a file, which the caller must discard; multipart is read only if `form` is set."""
    most = services.config.limits.upload_mb << 20
    media, options = parse_options_header(request.headers.get("content-type", ""))
    threads = services.threads
    reader: Reader
    if form and media.startswith("multipart/"):
        reader = Form(services.blobs.receiver, options.get("boundary", "") if media == "multipart/form-data" else "", most)
    else:
        reader = WholeBody(await in_thread(threads, services.blobs.receiver), media)
    try:
        if request.content_length > most + DRAIN_BYTES:
            raise too_large(most)
        async for piece in bounded(request.pieces, most, too_large(most), drain=DRAIN_BYTES):
            await in_thread(threads, reader.feed, piece)
        return await in_thread(threads, reader.end)
    except BaseException:
        reader.discard()
        raise


class WholeBody:
    """Reads a body that is the file itself."""

    def __init__(self, receiver: Receiver, media_type: str) -> None:
        self._receiver = receiver
        self._media_type = media_type or None

    def feed(self, body: bytes) -> None:
        self._receiver.write(body)

    def end(self) -> Upload:
        return Upload(self._receiver.finish(), None, self._media_type, {})

    def discard(self) -> None:
        self._receiver.discard()


class Form(FormReader):
    """Reads a form with one file, called `file`, and text fields."""

    def __init__(self, receiver: Callable[[], Receiver], boundary: str, most: int) -> None:
        super().__init__(receiver, boundary, FormLimits(MOST_PARTS, 1, FIELD_BYTES, most))
        self._names: set[str] = set()

    def accept(self, name: str, *, is_file: bool) -> None:
        if is_file and name != FILE_FIELD:
            raise ValidationFailed(
                Sentence("the form's file must be sent as the field %(file_field)s", file_field=repr(FILE_FIELD)),
                pointer=f"/{name[:60]}",
            )
        if name in self._names or (name == FILE_FIELD and not is_file):
            message = Sentence(
                "the form field %(name)s is sent twice, or is a text instead of a file; send one file and each text once",
                name=repr(name[:60]),
            )
            raise ValidationFailed(message, pointer=f"/{name[:60]}")
        self._names.add(name)

    def end(self) -> Upload:
        texts, files = self.finish()
        if not files:
            raise ValidationFailed(
                Sentence("the form has no file; send it as the field %(file_field)s", file_field=repr(FILE_FIELD)),
                pointer=f"/{FILE_FIELD}",
            )
        return Upload(files[0].received, files[0].name, files[0].media_type, dict(texts))
