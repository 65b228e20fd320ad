"""What a browser sends to a route: JSON, a form, or a form with files, which go to the disk as they come."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData

from appliance.blobs.receiving import Received, Receiver
from appliance.core.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType, ValidationFailed
from appliance.core.json_text import load_json
from appliance.webapps.mapping import Text

from .answers import Receive

T = TypeVar("T")
MOST_FIELDS, MOST_FILES = 1000, 10
_PIECE = 1 << 20
_HELD = 4 << 20  # a piece of the body and the headers of a part


@dataclass(frozen=True)
class FileLimits:
    """Of a form with files: most bytes of one file, and of all together."""

    file_bytes: int
    bytes: int


@dataclass(frozen=True)
class BodyLimits:
    """Most bytes of JSON or texts, its deepest nesting, and what files are taken, if any."""

    bytes: int
    depth: int
    files: FileLimits | None


@dataclass(frozen=True)
class SentFile:
    """A file of a form: the field, the sender's name and type for it, and what has arrived."""

    name: str
    filename: str
    media_type: str | None
    received: Received


@dataclass
class Body:
    """`values` is None where there was no body; `files` belong to whoever reads them."""

    values: Any = None
    files: list[SentFile] = field(default_factory=list)
    is_form: bool = False

    def discard(self) -> None:
        for file in self.files:
            file.received.discard()


class Intake:
    """Reads bodies; what takes long happens on the threads of `run`."""

    def __init__(self, receiver: Callable[[], Receiver], run: Callable[[Callable[[], Any]], Any]) -> None:
        self._receiver = receiver
        self._run = run

    async def read(self, receive: Receive, headers: Mapping[str, str], limits: BodyLimits) -> Body:
        """The body; PayloadTooLarge, UnsupportedMediaType, InvalidJson, InvalidRequest."""
        media, options = parse_options_header(headers.get("content-type", ""))
        if media == "multipart/form-data":
            if limits.files is None:
                raise UnsupportedMediaType("this takes no files; send application/json or application/x-www-form-urlencoded")
            return await self._read_form(_pieces(receive, headers, limits.files.bytes), options.get("boundary", ""), limits)
        raw = b"".join([piece async for piece in _pieces(receive, headers, limits.bytes)])
        if not raw and media == "":
            return Body()
        if media == "application/x-www-form-urlencoded":
            return Body(read_fields(raw), is_form=True)
        if media != "application/json":
            raise UnsupportedMediaType("send application/json, application/x-www-form-urlencoded or multipart/form-data")
        return Body(load_json(raw, limits.depth))

    async def _read_form(self, pieces: AsyncIterator[bytes], boundary: str, limits: BodyLimits) -> Body:
        form = Form(self._receiver, boundary, limits)
        try:
            async for piece in pieces:
                for start in range(0, len(piece), _PIECE):
                    part = piece[start : start + _PIECE]
                    await self._run(lambda part=part: form.feed(part))  # type: ignore[misc]
            found: Body = await self._run(form.finish)
        except BaseException:
            form.discard()
            raise
        return found


async def _pieces(receive: Receive, headers: Mapping[str, str], most: int) -> AsyncIterator[bytes]:
    size = 0
    given = headers.get("content-length", "")
    more = not (given.isdigit() and int(given) > most)
    if not more:
        raise PayloadTooLarge(f"the body may have at most {most >> 10} KiB")
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the caller has left")
        piece, more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > most:
            raise PayloadTooLarge(f"the body may have at most {most >> 10} KiB")
        yield piece


def read_fields(raw: bytes) -> dict[str, Any]:
    """The fields of a form, or of a query, as `Text`; a name that comes again is a list.  InvalidRequest."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidRequest(f"the fields cannot be read; send UTF-8 in percent encoding, at most {MOST_FIELDS}") from error
    return gather((name, Text(value)) for name, value in pairs)


def gather(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values by name, several of a name as a list; InvalidRequest for NUL, which no text may hold."""
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        if "\0" in name or (isinstance(value, str) and "\0" in value):
            raise InvalidRequest("a text holds a NUL character, which no text may")
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


class Form:
    """A `multipart/form-data` body (RFC 7578); its files are written as they come.  Fed on one thread at a time."""

    def __init__(self, receiver: Callable[[], Receiver], boundary: str, limits: BodyLimits) -> None:
        if not boundary or not boundary.isascii() or limits.files is None:
            raise InvalidRequest("a form names the boundary of its parts in its Content-Type")
        self._limits, self._most = limits, limits.files.file_bytes
        self._make = receiver
        self._decoder = MultipartDecoder(boundary.encode(), _HELD, max_parts=MOST_FIELDS)
        self._texts: list[tuple[str, bytes]] = []
        self._texts_size = 0
        self._files: list[SentFile] = []
        self._open: tuple[File, Receiver] | None = None
        self._in_text = False

    def feed(self, piece: bytes | None) -> None:
        for event in self._events(piece):
            if isinstance(event, Field | File):
                self._begin(event)
            elif isinstance(event, Data):
                self._take(event)

    def _events(self, piece: bytes | None) -> Iterator[object]:
        try:
            self._decoder.receive_data(piece)
            while not isinstance(event := self._decoder.next_event(), NeedData):
                yield event
                if isinstance(event, Epilogue):
                    return
        except RequestEntityTooLarge as error:
            raise PayloadTooLarge(f"a form has at most {MOST_FIELDS} parts, with short headers and nothing around them") from error
        except (ValueError, AttributeError) as error:  # bytes that make no sense to the decoder
            raise InvalidRequest("the body is not the multipart/form-data that its Content-Type says; send it again") from error

    def _begin(self, part: Field | File) -> None:
        if not part.name:
            raise InvalidRequest("every part of a form has a name")
        self._count(sum(len(name) + len(value) for name, value in part.headers))
        self._in_text = isinstance(part, Field)
        if isinstance(part, File):
            if len(self._files) >= MOST_FILES:
                raise PayloadTooLarge(f"a form has at most {MOST_FILES} files")
            self._open = (part, self._make())
        else:
            self._texts.append((part.name, b""))

    def _take(self, data: Data) -> None:
        if self._in_text:
            name, before = self._texts[-1]
            self._texts[-1] = (name, before + data.data)
            self._count(len(data.data))
        elif self._open is not None:
            part, receiver = self._open
            receiver.write(data.data)
            if receiver.size > self._most:
                raise PayloadTooLarge(f"a file has at most {self._most >> 10} KiB")
            if not data.more_data:
                self._close(part, receiver)

    def _count(self, size: int) -> None:
        """Names are texts like any: they become input as well."""
        self._texts_size += size
        if self._texts_size > self._limits.bytes:
            raise PayloadTooLarge(f"the texts of a form, with their names, have at most {self._limits.bytes >> 10} KiB together")

    def _close(self, part: File, receiver: Receiver) -> None:
        self._open = None
        if receiver.size == 0 and not part.filename:  # nothing was chosen
            receiver.discard()
            return
        received = receiver.finish()
        self._files.append(SentFile(part.name, part.filename, part.headers.get("Content-Type"), received))

    def finish(self) -> Body:
        self.feed(None)
        try:
            texts = [(name, Text(data.decode())) for name, data in self._texts]
        except UnicodeDecodeError as error:
            raise InvalidRequest("the texts of the form are not UTF-8") from error
        names = {name for name, _ in texts}
        for file in self._files:
            if file.name in names:
                raise ValidationFailed(f"{file.name[:60]!r} is a text and a file; name them apart", pointer=f"/{file.name[:60]}")
        return Body(gather(texts), self._files, is_form=True)

    def discard(self) -> None:
        """Give up what has arrived."""
        if self._open is not None:
            self._open[1].discard()
        for file in self._files:
            file.received.discard()
