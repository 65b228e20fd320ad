"""Reads request bodies within a limit."""

from collections.abc import AsyncIterator

from appliance.core.errors import PayloadTooLarge
from appliance.core.sentences import Sentence

DRAIN_BYTES = 1 << 20


def too_large(max_bytes: int) -> PayloadTooLarge:
    """The refusal of a longer body; it closes the connection, because the rest of the body is not read."""
    message = Sentence("the body may have at most %(most)s KiB", most=max_bytes >> 10)
    return PayloadTooLarge(message, headers={"Connection": "close"})


async def bounded(
    pieces: AsyncIterator[bytes], max_bytes: int, refusal: PayloadTooLarge, *, drain: int = 0
) -> AsyncIterator[bytes]:
    """The pieces of a body, or `refusal` once it exceeds `max_bytes`.

    Before that, up to `drain` further bytes are read and dropped: a client that sends everything before it reads would
    otherwise not see the refusal.
    """
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size <= max_bytes:
            yield piece
        elif size > max_bytes + drain:
            break
    if size > max_bytes:
        raise refusal


async def read_body(
    pieces: AsyncIterator[bytes], max_bytes: int, refusal: PayloadTooLarge | None = None, *, drain: int = DRAIN_BYTES
) -> bytes:
    """A whole body of at most `max_bytes`; see `bounded`."""
    chunks, size = [], 0
    async for piece in pieces:
        size += len(piece)
        if size <= max_bytes:
            chunks.append(piece)
        elif size > max_bytes + drain:
            break
    if size > max_bytes:
        raise refusal or too_large(max_bytes)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
