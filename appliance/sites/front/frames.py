"""Limits HTTP/2 frames that only cause work: they are counted on the raw bytes, before anything parses them."""

from appliance.core import clock

PREFACE = 24  # bytes before the first frame (RFC 9113 § 3.4)
HEAD = 9  # bytes of a frame header
DATA, HEADERS, RESET, SETTINGS = 0x0, 0x1, 0x3, 0x4
END_STREAM = ACK = 0x1
SMALL = 64  # bytes; a smaller piece of a body costs more work than it is worth
SETTINGS_COST = 10  # a change of settings affects every stream
CREDIT = 1024  # bytes sent that earn the client one frame, because it acknowledges what it receives


class TokenBucket:
    """A token bucket: `most` tokens, refilled at `per_second`."""

    def __init__(self, most: float, per_second: float) -> None:
        self._most, self._per_second = most, per_second
        self._tokens, self._updated_at = most, clock.monotonic()

    def take(self, amount: float) -> bool:
        """Take tokens; returns whether there were enough."""
        now = clock.monotonic()
        self.give((now - self._updated_at) * self._per_second)
        self._updated_at = now
        self._tokens -= amount
        return self._tokens >= 0

    def give(self, amount: float) -> None:
        """Return tokens, up to the capacity of the bucket."""
        self._tokens = min(self._most, self._tokens + amount)


class FrameBudget:
    """The budget of one connection for stream resets (CVE-2023-44487, CVE-2025-8671) and for frames that request nothing
    (CVE-2019-9511 to -9518).

    A browser that leaves a page cancels a few dozen requests, and a download acknowledges what it receives; neither comes close
    to the limits.
    """

    def __init__(self) -> None:
        self._resets = TokenBucket(100, 20)
        self._control = TokenBucket(1000, 100)
        self._skip = PREFACE
        self._head = b""

    def admit(self, data: bytes) -> bool:
        """Whether the frames that start in these bytes of the connection stay within the budget."""
        at = 0
        while True:
            skipped = min(self._skip, len(data) - at)
            self._skip -= skipped
            at += skipped
            piece = data[at : at + HEAD - len(self._head)]
            at += len(piece)
            self._head += piece
            if len(self._head) < HEAD:
                return True
            length, kind, flags = int.from_bytes(self._head[:3], "big"), self._head[3], self._head[4]
            self._skip, self._head = length, b""
            if not self._pay(length, kind, flags):
                return False

    def _pay(self, length: int, kind: int, flags: int) -> bool:
        if kind == RESET:
            return self.take_reset()
        if kind == HEADERS or (kind == DATA and (length >= SMALL or flags & END_STREAM)):
            return True
        return self._control.take(SETTINGS_COST if kind == SETTINGS and not flags & ACK else 1)

    def take_reset(self) -> bool:
        """Count a stream reset by the client, or one that the client made the server reset."""
        return self._resets.take(1)

    def credit(self, size: int) -> None:
        """Credit bytes that were sent to the client."""
        self._control.give(size / CREDIT)
