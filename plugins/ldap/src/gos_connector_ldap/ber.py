"""The part of ASN.1's Basic Encoding Rules that LDAP uses (RFC 4511 § 5.1): definite lengths and one-byte tags."""

BOOLEAN, INTEGER, OCTETS, ENUMERATED, SEQUENCE, SET = 0x01, 0x02, 0x04, 0x0A, 0x30, 0x31

_LONG_FORM = 0x80
_MANY_BYTES_OF_TAG = 0x1F
# Four bytes of length say 4 GB: more than any message that is read.
_MOST_LENGTH_BYTES = 4


class BerError(ValueError):
    """The bytes are not what LDAP's encoding allows."""


def element(tag: int, *parts: bytes) -> bytes:
    """One element with the given content."""
    content = b"".join(parts)
    size = len(content)
    if size < _LONG_FORM:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, _LONG_FORM | len(length))) + length + content


def integer(value: int, tag: int = INTEGER) -> bytes:
    """A whole number in as few bytes as it needs."""
    bits = (value if value >= 0 else ~value).bit_length()
    return element(tag, value.to_bytes(bits // 8 + 1, "big", signed=True))


def boolean(value: bool, tag: int = BOOLEAN) -> bytes:
    return element(tag, b"\xff" if value else b"\x00")


def octets(value: bytes | str, tag: int = OCTETS) -> bytes:
    """A text as UTF-8, or bytes as they are."""
    return element(tag, value.encode() if isinstance(value, str) else value)


def length_of(head: bytes) -> tuple[int, int] | None:
    """(size of tag and length, size of the content) of the element that begins here; None when more bytes are needed."""
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
    """Takes one element after the other from the content of another; BerError for what is not there."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def next_tag(self) -> int | None:
        """The tag that comes next, None at the end."""
        return self._content[self._at] if self._at < len(self._content) else None

    def take(self, *tags: int) -> bytes:
        """The content of the next element, which must have one of these tags, or any when none is named."""
        lengths = length_of(self._content[self._at : self._at + 2 + _MOST_LENGTH_BYTES])
        if lengths is None:
            raise BerError("an element that is cut off")
        if tags and self._content[self._at] not in tags:
            raise BerError(f"the tag {self._content[self._at]:#x} where {tags[0]:#x} belongs")
        start = self._at + lengths[0]
        end = start + lengths[1]
        if end > len(self._content):
            raise BerError("an element that is longer than what holds it")
        self._at = end
        return self._content[start:end]

    def number(self, tag: int = INTEGER) -> int:
        """The next element as a number of at most four bytes, as LDAP's are."""
        content = self.take(tag)
        if not 1 <= len(content) <= 4:
            raise BerError("a number of no or too many bytes")
        return int.from_bytes(content, "big", signed=True)

    def text(self, tag: int = OCTETS) -> str:
        """The next element as UTF-8; what is none is replaced."""
        return self.take(tag).decode("utf-8", "replace")
