"""What can be told of a decision (JSON Decision Model) by looking at it; pure, without the engine."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

PATH = re.compile(r"([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)*\Z")


def names_read(model: Mapping[str, Any]) -> frozenset[str]:
    """The names a well-formed model takes from its input: first words of the plain fields of tables right behind it."""
    nodes = {node["id"]: node for node in model["nodes"]}
    behind: dict[str, set[str]] = {}
    for edge in model["edges"]:
        behind.setdefault(edge["targetId"], set()).add(nodes[edge["sourceId"]]["type"])
    names = set()
    for identity, sources in behind.items():
        if sources == {"inputNode"} and nodes[identity]["type"] == "decisionTableNode":
            for column in nodes[identity]["content"]["inputs"]:
                found = PATH.match(column.get("field") or "")
                if found and not nodes[identity]["content"].get("inputField"):
                    names.add(found[1])
    return frozenset(names)


def unreachable_rules(model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Pointer and sentence for every rule of a well-formed model that an earlier one always precedes."""
    for number, node in enumerate(model["nodes"]):
        content = node.get("content")
        if node["type"] == "decisionTableNode" and content.get("hitPolicy", "first") == "first":
            for rule, reason in _hidden(content):
                yield f"/nodes/{number}/content/rules/{rule}", reason


def _hidden(content: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
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
