"""What a valid request of a route is made of."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Example:
    """Path parameters, query, and a body: JSON data, or text with its media type."""

    path: dict[str, str] = field(default_factory=dict)
    body: Any = None
    query: dict[str, Any] = field(default_factory=dict)
    media: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    stream: bool = False
    """The answer does not end by itself."""
