"""The part of ASN.1's Basic Encoding Rules that LDAP uses (RFC 4511 § 5.1): definite lengths and one-byte tags."""

BOOLEAN, INTEGER, OCTETS, ENUMERATED, SEQUENCE, SET = 0x01, 0x02, 0x04, 0x0A, 0x30, 0x31

_LONG_FORM = 0x80
_MANY_BYTES_OF_TAG = 0x1F
# Four length bytes allow 4 GB, more than any message that is accepted.
_MOST_LENGTH_BYTES = 4


class BerError(ValueError):
    """Raised for bytes that LDAP's encoding does not allow."""


def element(tag: int, *parts: bytes) -> bytes:
    """Encode an element with this tag and content."""
    content = b"".join(parts)
    size = len(content)
    if size < _LONG_FORM:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, _LONG_FORM | len(length))) + length + content


def integer(value: int, tag: int = INTEGER) -> bytes:
    """Encode an integer in as few bytes as possible."""
    bits = (value if value >= 0 else ~value).bit_length()
    return element(tag, value.to_bytes(bits // 8 + 1, "big", signed=True))


def boolean(value: bool, tag: int = BOOLEAN) -> bytes:
    return element(tag, b"\xff" if value else b"\x00")


def octets(value: bytes | str, tag: int = OCTETS) -> bytes:
    """Encode text as UTF-8, or bytes unchanged."""
    return element(tag, value.encode() if isinstance(value, str) else value)


def length_of(head: bytes) -> tuple[int, int] | None:
    """Return (size of tag and length, size of the content) of the first element; None when more bytes are needed."""
    if len(head) < 2:
        return None
    if head[0] & _MANY_BYTES_OF_TAG == _MANY_BYTES_OF_TAG:
        raise BerError("a tag of several bytes")
    first = head[1]
    if first < _LONG_FORM:
        return 2, first
    count = first & ~_LONG_FORM
    if not 1 <= count <= _MOST_LENGTH_BYTES:
        raise BerError("a length that is indefinite or too large")
    if len(head) < 2 + count:
        return None
    return 2 + count, int.from_bytes(head[2 : 2 + count], "big")


class Reader:
    """Reads the elements in the content of another element one by one; BerError for malformed content."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def next_tag(self) -> int | None:
        """Return the next tag, None at the end."""
        return self._content[self._position] if self._position < len(self._content) else None

    def take(self, *tags: int) -> bytes:
        """Return the content of the next element, which must have one of `tags`; without `tags`, any tag is accepted."""
        lengths = length_of(self._content[self._position : self._position + 2 + _MOST_LENGTH_BYTES])
        if lengths is None:
            raise BerError("an element that is cut off")
        if tags and self._content[self._position] not in tags:
            raise BerError(f"the tag {self._content[self._position]:#x} instead of {tags[0]:#x}")
        start = self._position + lengths[0]
        end = start + lengths[1]
        if end > len(self._content):
            raise BerError("an element longer than the one that contains it")
        self._position = end
        return self._content[start:end]

    def number(self, tag: int = INTEGER) -> int:
        """Read the next element as an integer of at most four bytes, the largest in LDAP."""
        content = self.take(tag)
        if not 1 <= len(content) <= 4:
            raise BerError("an integer that is empty or too long")
        return int.from_bytes(content, "big", signed=True)

    def text(self, tag: int = OCTETS) -> str:
        """Read the next element as UTF-8; invalid bytes are replaced."""
        return self.take(tag).decode("utf-8", "replace")
