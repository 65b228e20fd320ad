"""A parser base for definitions: each method notes problems and returns a harmless default instead of raising."""

from collections.abc import Mapping
from typing import Any

from appliance.core import clock, ids
from appliance.core.errors import ValidationFailed

from .nodes import Problem
from .template import Template, TemplateInvalid, compile_template

MAX_DURATION_MS = 3650 * 86_400_000


class Reader:
    """Parses members of a definition and collects problems instead of stopping at the first; `files` are those of the draft."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.problems: list[Problem] = []

    def problem(self, pointer: str, message: str) -> None:
        self.problems.append(Problem(pointer, "definition_invalid", message))

    def mapping(self, value: Any, pointer: str, allowed: tuple[str, ...], required: tuple[str, ...] = ()) -> dict[str, Any]:
        """An object that may only have the members `allowed` and must have `required`."""
        if not isinstance(value, dict):
            self.problem(pointer, "this must be an object")
            return {}
        for name in value:
            if name not in allowed:
                at = f"{pointer}/{pointer_token(name)}"
                self.problem(at, f"{str(name)[:60]!r} is not known here; known are {', '.join(allowed)}")
        for name in required:
            if name not in value:
                self.problem(f"{pointer}/{name}", f"{name!r} is required")
        return value

    def open_mapping(self, value: Any, pointer: str) -> dict[str, Any]:
        """An object with arbitrary member names."""
        if isinstance(value, dict):
            return value
        self.problem(pointer, "this must be an object")
        return {}

    def text(self, value: Any, pointer: str, default: str = "") -> str:
        if isinstance(value, str) and value.strip():
            return value
        self.problem(pointer, "this must be a text that is not empty")
        return default

    def slug(self, value: Any, pointer: str) -> str:
        text = self.text(value, pointer)
        try:
            ids.check_slug(text, pointer=pointer)
        except ValidationFailed as error:
            self.problem(pointer, error.message)
        return text

    def texts(self, value: Any, pointer: str) -> list[str]:
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return value
        self.problem(pointer, "this must be a list of texts")
        return []

    def duration(self, value: Any, pointer: str, *, minimum: int = 0) -> int | None:
        """A duration of at least `least`, in milliseconds; None for an absent or invalid one."""
        if value is None:
            return None
        try:
            milliseconds = clock.parse_duration(value if isinstance(value, str) else repr(value))
        except ValidationFailed as error:
            self.problem(pointer, error.message)
            return None
        if not minimum <= milliseconds <= MAX_DURATION_MS:
            self.problem(pointer, f"this must be a duration from {minimum} ms to ten years")
            return None
        return milliseconds

    def integer(self, value: Any, pointer: str, low: int, high: int) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.problem(pointer, f"this must be a whole number from {low} to {high}")
            return None
        return value

    def choice(self, value: Any, pointer: str, allowed: tuple[str, ...]) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        self.problem(pointer, f"this must be one of {', '.join(allowed)}")
        return allowed[0]

    def template(self, value: Any, pointer: str) -> Template:
        try:
            return compile_template(value, pointer)
        except TemplateInvalid as error:
            self.problem(error.pointer, error.message)
            return Template(pointer, None, (), (), constant=True)

    def expression(self, value: Any, pointer: str) -> Template | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value.startswith("="):
            self.problem(pointer, 'this must be an expression: a text that starts with "="')
            return None
        return self.template(value, pointer)


def pointer_token(part: str | int) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return str(part).replace("~", "~0").replace("/", "~1")
