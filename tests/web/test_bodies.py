"""Bodies are read within their limit, and a little more before they are refused."""

from collections.abc import AsyncIterator

import pytest

from appliance.core.errors import PayloadTooLarge
from appliance.web import DRAIN_BYTES, bounded, read_body, too_large

MOST = 1 << 10


class Sender:
    """A client that sends pieces of `size` bytes, and counts those that were read."""

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count, self.read = size, count, 0

    async def pieces(self) -> AsyncIterator[bytes]:
        while self.read < self.count:
            self.read += 1
            yield b"x" * self.size


async def test_a_body_up_to_the_limit_is_read() -> None:
    assert await read_body(Sender(MOST // 4, 4).pieces(), MOST) == b"x" * MOST
    assert await read_body(Sender(1, 0).pieces(), MOST) == b""


async def test_a_longer_body_is_read_to_its_end_before_it_is_refused() -> None:
    sender = Sender(MOST, 10)
    with pytest.raises(PayloadTooLarge) as refused:
        await read_body(sender.pieces(), MOST)
    assert sender.read == 10
    assert refused.value.headers == {"Connection": "close"}
    assert refused.value.message == "the body may have at most 1 KiB"


async def test_a_body_without_end_is_cut_off() -> None:
    sender = Sender(1 << 16, 1_000_000)
    with pytest.raises(PayloadTooLarge):
        await read_body(sender.pieces(), MOST)
    assert sender.read == DRAIN_BYTES // (1 << 16) + 1


async def test_pieces_within_the_limit_arrive_before_the_refusal() -> None:
    sender = Sender(MOST // 2, 9)
    pieces = bounded(sender.pieces(), MOST, too_large(MOST))
    assert [len(await anext(pieces)), len(await anext(pieces))] == [MOST // 2, MOST // 2]
    with pytest.raises(PayloadTooLarge):
        await anext(pieces)
    assert sender.read == 3
