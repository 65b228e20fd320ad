"""Static analysis of decisions (JSON Decision Model), without the engine.  Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

PATH = re.compile(r"([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)*\Z")


def names_read(model: Mapping[str, Any]) -> frozenset[str]:
    """The names that a well-formed model reads from its input: the first words of plain fields in tables directly after it."""
    nodes = {node["id"]: node for node in model["nodes"]}
    behind: dict[str, set[str]] = {}
    for edge in model["edges"]:
        behind.setdefault(edge["targetId"], set()).add(nodes[edge["sourceId"]]["type"])
    names = set()
    for identity, sources in behind.items():
        if sources == {"inputNode"} and nodes[identity]["type"] == "decisionTableNode":
            for column in nodes[identity]["content"]["inputs"]:
                match = PATH.match(column.get("field") or "")
                if match and not nodes[identity]["content"].get("inputField"):
                    names.add(match[1])
    return frozenset(names)


def unreachable_rules(model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The pointer of, and a sentence about, every rule of a well-formed model that an earlier rule always shadows."""
    for number, node in enumerate(model["nodes"]):
        content = node.get("content")
        if node["type"] == "decisionTableNode" and content.get("hitPolicy", "first") == "first":
            for rule, reason in _shadowed_rules(content):
                yield f"/nodes/{number}/content/rules/{rule}", reason


def _shadowed_rules(content: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    seen: dict[tuple[str, ...], int] = {}
    columns = [column["id"] for column in content["inputs"]]
    anything = ("",) * len(columns)
    for number, rule in enumerate(content["rules"]):
        conditions = tuple((rule.get(column) or "").strip() for column in columns)
        before = seen.get(anything, seen.get(conditions))
        if before is not None:
            takes = "every input" if anything in seen else "the same input"
            yield number, f"rule {number + 1} is never reached: rule {before + 1} takes {takes}, and the first that fits decides"
        else:
            seen[conditions] = number
