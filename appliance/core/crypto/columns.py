"""Where sealed values are stored, so that they can be sealed again with another key."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .sealing import prefix_of

Encoding = Literal["bytes", "base64url", "member"]
_MEMBER = '{"sealed":"'


@dataclass(frozen=True)
class SealedColumn:
    """A column with sealed values, which the package of its table declares.

    `key` are the columns of the primary key, `more` others that `context` needs: it gets the values of both by their names, and
    returns what the value is bound to.  `encoding`: the value itself, in base64 for addresses, or as the member `sealed`, in
    base64, that begins a JSON object.  `where` is the SQL condition of rows that may have a value.
    """

    table: str
    column: str
    key: tuple[str, ...]
    context: Callable[[Mapping[str, Any]], str]
    more: tuple[str, ...] = ()
    encoding: Encoding = "bytes"
    where: str = ""

    @property
    def name(self) -> str:
        return f"{self.table}.{self.column}"

    def read(self, stored: Any) -> bytes:
        """The sealed value of a stored one; ConfigInvalid if that is damaged."""
        try:
            if self.encoding == "bytes":
                return bytes(stored)
            if self.encoding == "base64url":
                return base64.urlsafe_b64decode(stored)
            return base64.b64decode(json.loads(stored)["sealed"])
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise ConfigInvalid(Sentence("a value of %(column)s is damaged", column=self.name)) from error

    def replace(self, stored: Any, sealed: bytes) -> Any:
        """What to store for another sealed value in place of this one."""
        if self.encoding == "bytes":
            return sealed
        if self.encoding == "base64url":
            return base64.urlsafe_b64encode(sealed).decode()
        end = stored.index('"', len(_MEMBER))
        return _MEMBER + base64.b64encode(sealed).decode() + stored[end:]

    def condition(self, current: str) -> tuple[str, Any]:
        """The SQL condition of rows whose value is not sealed with the key `current`, and its parameter."""
        value: bytes | str
        prefix, has = prefix_of(current), f"{self.column} IS NOT NULL AND length({self.column}) > 0"
        if self.encoding == "bytes":
            begins, value = f"substr({self.column}, 1, {len(prefix)})", prefix
        elif self.encoding == "base64url":  # nine bytes are twelve characters, so that the prefix has an encoding of its own
            begins, value = f"substr({self.column}, 1, 12)", base64.urlsafe_b64encode(prefix).decode()
        else:
            begins, value = f"substr({self.column}, {len(_MEMBER) + 1}, 12)", base64.b64encode(prefix).decode()
        also = f" AND {self.where}" if self.where else ""
        return f"{has} AND {begins} <> ?{also}", value
