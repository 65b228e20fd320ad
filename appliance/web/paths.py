"""Finds the target of a method and a path, as werkzeug's router would for the same templates."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Node(Generic[T]):
    """The templates that begin with the same parts: what follows literally, as a parameter, and what ends here by method."""

    parts: dict[str, "_Node[T]"] = field(default_factory=dict)
    parameter: "_Node[T] | None" = None
    targets: dict[str, tuple[tuple[str, ...], T]] = field(default_factory=dict)


class PathTable(Generic[T]):
    """Templates such as `/processes/{id}/draft`: a parameter takes one part of a path, and a literal part goes before one."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, method: str, template: str, target: T) -> None:
        """Add a template; its parameters are the names in braces."""
        node, names = self._root, list[str]()
        for part in template.strip("/").split("/"):
            if part.startswith("{"):
                names.append(part.strip("{}"))
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.parts.setdefault(part, _Node())
        node.targets[method] = (tuple(names), target)

    def find(self, method: str, path: str) -> tuple[T, dict[str, str]] | None:
        """The target and the values of its parameters.  None where there is none, and for a path with an empty part."""
        parts = path.strip("/").split("/")
        if path.startswith("//") or path.endswith("//") or "" in parts:
            return None
        match = _find(self._root, method, parts, ())
        if match is None:
            return None
        values, (names, target) = match
        return target, dict(zip(names, values, strict=True))


_Match = tuple[tuple[str, ...], tuple[tuple[str, ...], T]]


def _find(node: _Node[T], method: str, parts: list[str], values: tuple[str, ...]) -> _Match[T] | None:
    if not parts:
        return (values, node.targets[method]) if method in node.targets else None
    part, rest = parts[0], parts[1:]
    literal = node.parts.get(part)
    match = _find(literal, method, rest, values) if literal is not None else None
    if match is None and node.parameter is not None:
        match = _find(node.parameter, method, rest, (*values, part))
    return match
