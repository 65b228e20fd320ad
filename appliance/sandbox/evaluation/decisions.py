"""Evaluates decision tables and graphs (JSON Decision Model) with zen-engine, in a separate sandbox process.

The engine treats what it cannot parse as "no match" and runs JavaScript in function nodes; therefore every model is validated
before use, and only nodes without code are admitted.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import zen

from appliance.sandbox.evaluation.decision_model import PATH, names_read
from appliance.sandbox.outcome import Failure, Problem
from appliance.sandbox.wire import Channel, Header, Verb

MAX_CACHED = 128
NODES, CELLS = 500, 50_000
_KINDS = {"inputNode", "outputNode", "decisionTableNode", "expressionNode", "switchNode"}
_REFUSED = {
    "functionNode": "a function node runs JavaScript outside of the sandbox; use a code step instead",
    "decisionNode": "a decision cannot call another one; use two rule steps",
    "customNode": "custom nodes do not exist here; use a code step instead",
}


class Refused(Exception):
    """The model was refused because of its `problems`."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems[0].message)
        self.problems = problems


def find_problems(model: Any) -> list[Problem]:
    """The problems of a model, including those that the engine would silently misinterpret."""
    nodes = model.get("nodes") if isinstance(model, dict) else None
    if not isinstance(nodes, list) or not isinstance(model.get("edges"), list):
        return [Problem("", "a decision is an object with the arrays nodes and edges")]
    if len(nodes) > NODES:
        return [Problem("/nodes", f"a decision has at most {NODES} nodes")]
    problems = list(_graph_problems(nodes, model["edges"]))
    for number, node in enumerate(nodes):
        problems += _node_problems(f"/nodes/{number}", node)
    return problems or _engine_problems(model)


def _graph_problems(nodes: list[Any], edges: list[Any]) -> Iterator[Problem]:
    ids = {node.get("id") for node in nodes if isinstance(node, dict)}
    kinds = [node.get("type") for node in nodes if isinstance(node, dict)]
    for kind in ("inputNode", "outputNode"):
        if kind not in kinds:
            yield Problem("/nodes", f"there is no {kind}")
    for number, edge in enumerate(edges):
        for end in ("sourceId", "targetId"):
            if not isinstance(edge, dict) or edge.get(end) not in ids:
                yield Problem(f"/edges/{number}/{end}", "the edge names a node that does not exist")
    targets = {edge.get("targetId") for edge in edges if isinstance(edge, dict)}
    for number, node in enumerate(nodes):
        if isinstance(node, dict) and node.get("type") not in ("inputNode", None) and node.get("id") not in targets:
            yield Problem(f"/nodes/{number}", f"nothing leads to the node '{node.get('name')}', so it is never reached")


def _node_problems(pointer: str, node: Any) -> Iterator[Problem]:
    kind = node.get("type") if isinstance(node, dict) else None
    if kind in _REFUSED:
        yield Problem(f"{pointer}/type", _REFUSED[kind])
    elif kind not in _KINDS:
        yield Problem(f"{pointer}/type", f"a node is one of {', '.join(sorted(_KINDS))}")
    elif kind in _CONTENTS:
        content = node.get("content")
        if not isinstance(content, dict):
            yield Problem(f"{pointer}/content", "the node has no content")
            return
        try:
            yield from _CONTENTS[kind](f"{pointer}/content", content)
        except (KeyError, TypeError, AttributeError):
            yield Problem(f"{pointer}/content", f"this is not the content of a {kind}")


def _table_problems(pointer: str, content: dict[str, Any]) -> Iterator[Problem]:
    inputs, outputs, rules = content["inputs"], content["outputs"], content["rules"]
    if len(rules) * (len(inputs) + len(outputs)) > CELLS:
        yield Problem(f"{pointer}/rules", f"a table has at most {CELLS:,} cells")
        return
    if content.get("hitPolicy", "first") not in ("first", "collect"):
        yield Problem(f"{pointer}/hitPolicy", "the hit policy is first or collect")
    for number, column in enumerate(inputs):
        if column.get("field"):
            yield from _expression(f"{pointer}/inputs/{number}/field", column["field"])
    for number, column in enumerate(outputs):
        if not PATH.match(column["field"]):
            yield Problem(f"{pointer}/outputs/{number}/field", "an output is named by a word or words with dots")
    for number, rule in enumerate(rules):
        for column in inputs:
            check = _unary if column.get("field") else _expression
            yield from check(f"{pointer}/rules/{number}/{column['id']}", rule.get(column["id"], ""))
        for column in outputs:
            yield from _expression(f"{pointer}/rules/{number}/{column['id']}", rule.get(column["id"], ""))


def _expressions_problems(pointer: str, content: dict[str, Any]) -> Iterator[Problem]:
    for number, each in enumerate(content["expressions"]):
        if not PATH.match(each["key"]):
            yield Problem(f"{pointer}/expressions/{number}/key", "a key is a word or words with dots")
        yield from _expression(f"{pointer}/expressions/{number}/value", each["value"])


def _switch_problems(pointer: str, content: dict[str, Any]) -> Iterator[Problem]:
    for number, each in enumerate(content["statements"]):
        yield from _expression(f"{pointer}/statements/{number}/condition", each.get("condition", ""))


_CONTENTS: dict[str, Callable[[str, dict[str, Any]], Iterator[Problem]]] = {
    "decisionTableNode": _table_problems,
    "expressionNode": _expressions_problems,
    "switchNode": _switch_problems,
}


def _check_cell(pointer: str, text: Any, check: Callable[[str], Any]) -> Iterator[Problem]:
    if not isinstance(text, str):
        yield Problem(pointer, "a cell is text; put a literal text in quotes inside it")
    elif text.strip():
        try:
            check(text)
        except Exception as fault:  # noqa: BLE001  zen raises RuntimeError for everything
            yield Problem(pointer, f"'{text[:80]}' is not understood: {_reason(fault)}")


def _expression(pointer: str, text: Any) -> Iterator[Problem]:
    return _check_cell(pointer, text, zen.compile_expression)


def _unary(pointer: str, text: Any) -> Iterator[Problem]:
    return _check_cell(pointer, text, zen.compile_unary_expression)


def _reason(fault: BaseException) -> str:
    """The message of a zen error, without its native backtrace."""
    text = str(fault).split("\n\nStack backtrace", 1)[0].strip()
    try:
        return str(json.loads(text)["source"])
    except (ValueError, KeyError, TypeError):
        return " ".join(text.split())[:500]


def _engine_problems(model: Any) -> list[Problem]:
    try:
        zen.ZenEngine().create_decision(json.dumps(model)).validate()
    except Exception as fault:  # noqa: BLE001  zen raises RuntimeError for everything
        return [Problem("", _reason(fault))]
    return []


@dataclass(frozen=True)
class Decision:
    """A validated model; `reads` are the names that it reads from its input."""

    engine: zen.ZenDecision
    reads: frozenset[str]


_cache: OrderedDict[str, Decision] = OrderedDict()


def load(text: bytes) -> Decision:
    """Load a decision, from the cache if possible; raises Refused if the model has problems."""
    key = hashlib.sha256(text).hexdigest()
    decision = _cache.get(key)
    if decision is None:
        model = json.loads(text)
        problems = find_problems(model)
        if problems:
            raise Refused(problems)
        decision = _cache[key] = Decision(zen.ZenEngine().create_decision(text.decode()), names_read(model))
        while len(_cache) > MAX_CACHED:
            _cache.popitem(last=False)
    _cache.move_to_end(key)
    return decision


def decide(text: bytes, facts: bytes) -> tuple[bytes, Failure | None]:
    """Evaluate a decision; returns its result as JSON, or the failure."""
    values = json.loads(facts)
    try:
        decision = load(text)
        if not isinstance(values, dict):
            return b"null", _failure("the input of a decision is an object")
        missing = sorted(decision.reads - values.keys())
        if missing:
            return b"null", _failure(
                f"the decision reads '{missing[0]}', which its input does not have; give null where absence is meant"
            )
        result = decision.engine.evaluate(facts.decode())["result"]
    except Refused as refused:
        first = refused.problems[0]
        return b"null", _failure(f"{first.message} (at {first.pointer or '/'})", "definition_invalid")
    except Exception as fault:  # noqa: BLE001  zen raises RuntimeError for everything
        return b"null", _failure(_reason(fault))
    return json.dumps(result, separators=(",", ":"), allow_nan=False).encode(), None


def _failure(message: str, code: str = "decision_failed") -> Failure:
    return Failure("validation", "DecisionFailed", message, code=code)


def _answer_decide(channel: Channel, header: Header, parts: list[bytes]) -> None:
    result, failure = decide(parts[0], parts[1])
    channel.send({"op": "end", "failure": failure and failure.to_wire()}, result)


def _answer_check(channel: Channel, header: Header, parts: list[bytes]) -> None:
    problems = find_problems(json.loads(parts[0]))
    channel.send({"op": "end", "problems": [[each.pointer, each.message] for each in problems[:100]]})


_WARM: dict[str, Any] = {
    "nodes": [{"id": "i", "type": "inputNode", "name": "i"}, {"id": "o", "type": "outputNode", "name": "o"}],
    "edges": [{"id": "e", "sourceId": "i", "targetId": "o"}],
}


def warm_up() -> None:
    """Evaluate once so that the engine opens its files while that is still allowed."""
    zen.ZenEngine().create_decision(json.dumps(_WARM)).evaluate("{}")


VERBS: dict[str, Verb] = {"decide": _answer_decide, "check": _answer_check}
