"""One tool call of a run: judged, made once, and where a person has to agree, made when they have, with the arguments they saw.

A call of a tool that stays in the database shares the write of its result.  Any other call has a key of its place in the run, by
which the executor, processes and requests know it again: what was begun before a crash is the same request after it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ToolCallPart

from appliance.core import clock, db
from appliance.core.errors import (
    ApplianceError,
    ApprovalRequired,
    Conflict,
    IdempotencyInFlight,
    PolicyDenied,
    ValidationFailed,
)
from appliance.governance import approvals
from appliance.governance.action_approvals import Wish, is_over
from appliance.governance.actions import canonical_action
from appliance.governance.approvals import Approval
from appliance.governance.governor import approval_required, denied
from appliance.governance.policies.decision import Decision, ToolAction
from appliance.governance.subjects import SkillUsed
from appliance.governance.taint import source_of, tainted

from . import store
from .definition import CALL_ACTION, LIST_ACTIONS, LOAD_SKILL
from .journal import CallState, Entry
from .stretch import Means, Stretch, Waits
from .tools.tool import APPROVAL_ID, Tool
from .tracing import TELEMETRY
from .turning import KEY, offered_tools

ASK = "request_human_input"
_IN_FLIGHT_MS = 1_000
