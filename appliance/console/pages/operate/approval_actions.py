"""The exact action that an approval is about, for its page: secrets are redacted, invisible characters are escaped."""

import json
from dataclasses import dataclass
from typing import Any

from appliance.console.frame.json_blocks import Block, describe, leaves
from appliance.console.frame.routing import Visit
from appliance.core.logs import redact
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.governance import StoredAction, printable
from appliance.governance.approvals import ActionApprovals, Approval

EFFECTS = {"read": mark("only reads"), "idempotent": mark("writes, and may be repeated"), "write": mark("writes")}


MOST_LEAVES, LONGEST_LEAF = 6, 120


@dataclass(frozen=True)
class ActionView:
    """An action for the page.

    `pairs` are labels with values for everything except the input; `input` is the whole input, `leaves` its first plain values
    and `more` the number of further ones; `given` is the input as JSON, `text` the canonical text that the digest covers, and
    `hides` tells whether secrets are redacted.
    """

    stored: StoredAction
    pairs: list[tuple[str, str]]
    input: Block
    leaves: list[tuple[str, str]]
    more: int
    input_json: str
    text: str
    hides: bool


def build_action_view(visit: Visit, approval: Approval) -> ActionView | None:
    """The action that the approval would allow; None when the approval is not about an action."""
    if approval.about.digest is None:
        return None
    stored = ActionApprovals(visit.services.sealer).read_action(visit.scope, approval.id)
    action, text = stored.action, redact(stored.canonical.text)
    fields = [
        (_("Tool"), action.tool if not action.integration else ""), (_("Integration"), action.integration),
        (_("Operation"), action.operation), (_("Effect"), _(EFFECTS.get(action.effect, action.effect))),
        (_("Connector"), action.connector), (_("Leads to"), action.host), (_("Credentials"), action.credential),
    ]  # fmt: skip
    pairs = [(name, printable(redact(value))) for name, value in fields if value]
    visible_input = _make_printable(dict(action.input))
    all_leaves = list(leaves(visible_input)) if visible_input else []
    first_leaves = [
        (name, value if len(value) <= LONGEST_LEAF else f"{value[:LONGEST_LEAF]}…") for name, value in all_leaves[:MOST_LEAVES]
    ]
    return ActionView(
        stored=stored, pairs=pairs, input=describe(visible_input), leaves=first_leaves, more=len(all_leaves) - len(first_leaves),
        input_json=json.dumps(visible_input, ensure_ascii=False, indent=2), text=printable(text),
        hides=text != stored.canonical.text,
    )  # fmt: skip


def _make_printable(value: Any) -> Any:
    """The value with secrets redacted and invisible characters escaped; line breaks are kept."""
    if isinstance(value, str):
        return "\n".join(printable(line) for line in redact(value).split("\n"))
    if isinstance(value, dict):
        return {_make_printable(name): _make_printable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_make_printable(item) for item in value]
    return value if not isinstance(value, float) or value == value else json.dumps(value)
