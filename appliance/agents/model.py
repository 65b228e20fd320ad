"""A pydantic-ai model backed by a tenant's LLM profile: every turn goes through our own client, its egress, redaction and budgets.

Our code is synchronous: `request` blocks the event loop that awaits it.  Run an agent with `run_in_new_loop`, in a thread of the
queue, and give it tools that are `async def` and do not await: the whole run then stays in its caller's thread and may
read and write the database like any other code.  (`Agent.run_sync` leaves the thread's event loop unclosed, and pydantic-ai
moves plain `def` tools to other threads.)
"""

import asyncio
import datetime
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.llm import Conversation, Generated, LanguageModels, Origin

from .messages import messages_of, offers_of, response_of, system_of
from .tracing import TELEMETRY, Telemetry, record_turn

T = TypeVar("T")
# Called after each turn, outside any transaction: runs `generated.settle(scope)` inside the write that records it.
# The response is None where the turn failed; `generated.error` is raised then.
Record = Callable[[Generated, ModelResponse | None], None]

# Features that every server of either protocol supports; structured output goes through a tool call.
_CAPABILITIES = ModelProfile(
    supports_tools=True, supports_json_schema_output=False, supports_json_object_output=False,
    default_structured_output_mode="tool", supports_inline_system_prompts=False, supports_document_input=False,
    supports_audio_file_input=False, supports_video_input=False, supported_native_tools=frozenset(),
)  # fmt: skip


def run_in_new_loop(running: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its result on a new event loop in this thread, and close the loop; the thread must not have one."""
    with asyncio.Runner() as runner:
        return runner.run(running)


@dataclass(frozen=True)
class ModelContext:
    """On whose behalf a model is called: an agent run (inside an execution or standalone), until `ends` (monotonic seconds).

    If `record` is None, each turn is settled in its own transaction.
    """

    scope: TenantScope
    run_id: str
    deadline: float
    execution_id: str | None = None
    record: Record | None = None
    telemetry: Telemetry = TELEMETRY


class ProfileModel(Model[None]):
    """The model behind an LLM profile, for one run.  Raises NotFound if the tenant has no such profile.

    A failed turn raises a coded error: ModelFailed (`extra` says whether and when to retry), TimedOut, BudgetExceeded,
    AddressNotAllowed, AnswerRefused, AnswerInvalid (the reply was cut off).  Arguments that are not valid JSON, unknown tools
    and empty replies are passed to pydantic-ai, which reports them to the model.
    """

    def __init__(self, models: LanguageModels, profile: str, context: ModelContext) -> None:
        self._models, self._slug, self._context = models, profile, context
        self._llm_profile = models.get_profile(context.scope, profile).profile
        super().__init__(profile=_CAPABILITIES)

    @property
    def model_name(self) -> str:
        """The provider's name for the model."""
        return self._llm_profile.model

    @property
    def system(self) -> str:
        """The protocol that the model's server speaks."""
        return self._llm_profile.kind

    @property
    def base_url(self) -> str:
        """The address of the model's server."""
        return self._llm_profile.address

    async def request(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None, model_request_parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Ask the model for its next turn."""
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        conversation = Conversation(
            self._slug,
            messages_of(messages, self.system),
            system=system_of(messages, parameters),
            tools=offers_of(parameters),
            choice=_choice(settings, parameters),
            max_tokens=(settings or {}).get("max_tokens"),
            temperature=(settings or {}).get("temperature"),
        )
        turn = sum(isinstance(message, ModelResponse) for message in messages) + 1
        return self._request_turn(conversation, turn)

    def _request_turn(self, conversation: Conversation, turn: int) -> ModelResponse:
        context = self._context
        origin = Origin(context.execution_id, f"{context.run_id}.{turn}", context.run_id)
        with context.telemetry.turn(conversation, self._llm_profile, context.run_id) as span:
            generated = self._models.converse(context.scope, conversation, origin, context.deadline)
            record_turn(span, generated)
            if generated.error is not None:
                self._record(generated, None)
                raise generated.error
        now = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)
        response = response_of(generated, self.system, now)
        self._record(generated, response)
        return response

    def _record(self, generated: Generated, response: ModelResponse | None) -> None:
        if self._context.record is not None:
            self._context.record(generated, response)
        else:
            db.write(lambda: generated.settle(self._context.scope))


def _choice(settings: ModelSettings | None, parameters: ModelRequestParameters) -> Literal["auto", "required", "none"]:
    choice = (settings or {}).get("tool_choice")
    if choice == "none" or choice == "required":
        return choice
    return "required" if parameters.output_tools and not parameters.allow_text_output else "auto"
