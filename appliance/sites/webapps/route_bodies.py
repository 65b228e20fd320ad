"""Parses the bodies of requests to routes: JSON, a form, or a form with files, which are streamed to disk."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from werkzeug.http import parse_options_header

from appliance.blobs import Receiver
from appliance.core.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType, ValidationFailed
from appliance.core.json_text import load_json
from appliance.core.sentences import Sentence
from appliance.tenants import LARGE_BYTES, LargeBodies
from appliance.web import FormLimits, FormReader, Request, SentFile, bounded
from appliance.webapps.routes import Text

T = TypeVar("T")
MOST_FIELDS, MOST_FILES = 1000, 10


@dataclass(frozen=True)
class FileLimits:
    """Limits of a form with files: bytes of one file, and of all together."""

    file_bytes: int
    bytes: int


@dataclass(frozen=True)
class BodyLimits:
    """Limits of a body: bytes of JSON or text, nesting depth, and limits for files, or None if files are not accepted."""

    bytes: int
    depth: int
    files: FileLimits | None


@dataclass
class Body:
    """A parsed body; `values` is None when there was none. The caller owns `files`."""

    values: Any = None
    files: list[SentFile] = field(default_factory=list)
    is_form: bool = False

    def discard(self) -> None:
        for file in self.files:
            file.received.discard()


class BodyReader:
    """Reads bodies; slow work runs on the threads of `run`."""

    def __init__(self, receiver: Callable[[], Receiver], run: Callable[[Callable[[], Any]], Any], large: LargeBodies) -> None:
        self._receiver = receiver
        self._run = run
        self._large = large

    async def read(self, request: Request, limits: BodyLimits) -> Body:
        """Read the body of a request; PayloadTooLarge, UnsupportedMediaType, InvalidJson, InvalidRequest."""
        media, options = parse_options_header(request.headers.get("content-type", ""))
        if media == "multipart/form-data":
            if limits.files is None:
                raise UnsupportedMediaType("no files are accepted here; send application/json or application/x-www-form-urlencoded")
            form_limits = FormLimits(MOST_FIELDS, MOST_FILES, limits.bytes, limits.files.file_bytes)
            reader = FormReader(self._receiver, options.get("boundary", ""), form_limits)
            return await self._read_form(_bounded(request, limits.files.bytes), reader)
        raw = b"".join([piece async for piece in _bounded(request, limits.bytes)])
        if not raw and media == "":
            return Body()
        if media == "application/x-www-form-urlencoded":
            return Body(read_fields(raw), is_form=True)
        if media != "application/json":
            raise UnsupportedMediaType("send application/json, application/x-www-form-urlencoded or multipart/form-data")
        if len(raw) < LARGE_BYTES:
            return Body(load_json(raw, limits.depth))
        async with self._large.turn(request.tenant, len(raw)):
            return Body(await self._run(partial(load_json, raw, limits.depth)))

    async def _read_form(self, pieces: AsyncIterator[bytes], reader: FormReader) -> Body:
        try:
            async for piece in pieces:
                await self._run(partial(reader.feed, piece))
            texts, files = await self._run(reader.finish)
            names = {name for name, _ in texts}
            for file in files:
                if file.field in names:
                    message = Sentence("%(field)s is both a text and a file; use different names", field=repr(file.field[:60]))
                    raise ValidationFailed(message, pointer=f"/{file.field[:60]}")
            return Body(group_values((name, Text(text)) for name, text in texts), files, is_form=True)
        except BaseException:
            reader.discard()
            raise


def _bounded(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """The body of the request, refused at once if it announces more than `max_bytes`."""
    refusal = PayloadTooLarge(Sentence("the body can have at most %(most)s KiB", most=max_bytes >> 10))
    if request.content_length > max_bytes:
        raise refusal
    return bounded(request.pieces, max_bytes, refusal)


def read_fields(raw: bytes) -> dict[str, Any]:
    """The fields of a form or query as `Text`; a repeated name becomes a list. InvalidRequest."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidRequest(
            Sentence("the fields are not readable; send at most %(most_fields)s as percent-encoded UTF-8", most_fields=MOST_FIELDS)
        ) from error
    return group_values((name, Text(value)) for name, value in pairs)


def group_values(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values by name, a list for repeated names; InvalidRequest for NUL characters."""
    values_by_name: dict[str, list[Any]] = {}
    for name, value in pairs:
        if "\0" in name or (isinstance(value, str) and "\0" in value):
            raise InvalidRequest("a text contains a NUL character, which is not allowed")
        values_by_name.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in values_by_name.items()}
