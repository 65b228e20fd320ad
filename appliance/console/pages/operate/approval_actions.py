"""The action that a request is about, as the page shows it: exactly, with secrets and what would not be seen written out."""

import json
from dataclasses import dataclass
from typing import Any

from appliance.console.frame.particulars import Block, describe, leaves
from appliance.console.frame.routing import Visit
from appliance.core.logs import redact
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.governance import StoredAction, printable
from appliance.governance.approvals import ActionApprovals, Approval

EFFECTS = {"read": mark("only reads"), "idempotent": mark("writes, and may be repeated"), "write": mark("writes")}


MOST_LEAVES, LONGEST_LEAF = 6, 120


@dataclass(frozen=True)
class ShownAction:
    """`pairs` are the names and values beside the input, `leaves` the first plain values of it;
    `given` is the whole of it as JSON, `text` the canonical text, `hides` whether secrets are left out."""

    stored: StoredAction
    pairs: list[tuple[str, str]]
    input: Block
    leaves: list[tuple[str, str]]
    more: int
    given: str
    text: str
    hides: bool


def show_action(visit: Visit, approval: Approval) -> ShownAction | None:
    """What the request would have done; None when it is about no action."""
    if approval.about.digest is None:
        return None
    stored = ActionApprovals(visit.services.sealer).read_action(visit.scope, approval.id)
    action, text = stored.action, redact(stored.canonical.text)
    told = [
        (_("Tool"), action.tool if not action.integration else ""), (_("Integration"), action.integration),
        (_("Operation"), action.operation), (_("Effect"), _(EFFECTS.get(action.effect, action.effect))),
        (_("Connector"), action.connector), (_("Leads to"), action.host), (_("Credentials"), action.credential),
    ]  # fmt: skip
    pairs = [(name, printable(redact(value))) for name, value in told if value]
    given = _visible(dict(action.input))
    found = list(leaves(given)) if given else []
    shown = [(name, value if len(value) <= LONGEST_LEAF else f"{value[:LONGEST_LEAF]}…") for name, value in found[:MOST_LEAVES]]
    return ShownAction(
        stored, pairs, describe(given), shown, len(found) - len(shown),
        json.dumps(given, ensure_ascii=False, indent=2), printable(text), text != stored.canonical.text,
    )  # fmt: skip


def _visible(value: Any) -> Any:
    """The value redacted, with everything escaped that would not be seen; line breaks stay."""
    if isinstance(value, str):
        return "\n".join(printable(line) for line in redact(value).split("\n"))
    if isinstance(value, dict):
        return {_visible(name): _visible(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_visible(item) for item in value]
    return value if not isinstance(value, float) or value == value else json.dumps(value)
