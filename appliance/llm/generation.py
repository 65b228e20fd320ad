"""Generates an answer: asks a model, validates the answer against its schema, asks for corrections, and records every exchange."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from appliance.connectors.egress import EgressClient
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AnswerInvalid, AnswerRefused, ApplianceError, BudgetExceeded, Detail
from appliance.core.json_schema import Schema
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from . import usage
from .client import OpenProfile, ask, is_free
from .exchange import DEFAULT_MAX_TOKENS, Question, Reply
from .prompt import Message, Prompt, check_output_schema
from .redaction import BUILT_IN, Mask
from .structured import correction, describe, instructions, read_json, unwrap, wrap
from .tools import ToolCall, ToolResult
from .usage import NANO, Origin, Reservation, UsageSum

if TYPE_CHECKING:
    from .profile import Profile


@dataclass
class Generated:
    """The result of a question: its value or an error, every exchange in redacted form, and the usage.

    `settle` must run inside the write that records the result.
    """

    value: Any = None
    error: ApplianceError | None = None
    exchanges: list[dict[str, Any]] = field(default_factory=list)
    used: UsageSum = field(default_factory=UsageSum)
    charges: list[tuple[Reservation, UsageSum | None]] = field(default_factory=list)

    @property
    def retry_after(self) -> float | None:
        """The seconds that the provider asks to wait before a retry."""
        return None if self.error is None else self.error.extra.get("retry_after")

    def settle(self, scope: TenantScope) -> None:
        """Settle the reservations of finished calls; inside a write, and idempotent."""
        for reservation, used in self.charges:
            usage.settle(scope, reservation, used)

    def to_journal(self) -> dict[str, Any]:
        """The exchanges and usage as the journal stores them."""
        sums = {"calls": self.used.calls, "input_tokens": self.used.input_tokens, "output_tokens": self.used.output_tokens}
        return {"exchanges": self.exchanges, "usage": sums | {"cost": self.used.cost_nano / NANO}}

    def charge(self, reservation: Reservation, used: UsageSum | None) -> None:
        self.charges.append((reservation, used))
        self.used = self.used.plus(reservation.most if used is None else used)


@dataclass(frozen=True)
class Connection:
    """A caller's connection to one profile; `also` are redaction patterns besides the profile's own."""

    scope: TenantScope
    client: EgressClient
    ready: OpenProfile
    origin: Origin
    ends: float
    extra_patterns: tuple[tuple[str, str], ...] = ()

    @property
    def mask(self) -> Mask:
        """A new mask, for one conversation."""
        return Mask((*self.extra_patterns, *patterns_of(self.ready.profile)))

    def exchange(
        self, question: Question, new: Sequence[Message | ToolResult], mask: Mask, generated: Generated
    ) -> tuple[Reply | None, ApplianceError | None]:
        """Send one question, record it with its usage in `told`, and return the reply or the error.

        `new` are the messages of the question that have not been recorded before.
        """
        reservation = self._reserve(question, generated)
        if isinstance(reservation, BudgetExceeded):
            return None, reservation
        started = clock.monotonic()
        entry: dict[str, Any] = {
            "profile": self.ready.slug, "model": self.ready.profile.model, "request": _describe_request(question, new),
        }  # fmt: skip
        generated.exchanges.append(entry)
        try:
            reply = ask(self.client, self.ready, question, self.ends)
        except ApplianceError as error:
            generated.charge(reservation, UsageSum() if is_free(error) else None)
            entry |= {"error": {"code": error.code, "message": mask.hide(error.message)}, "duration_ms": _elapsed_ms(started)}
            return None, error
        used, is_estimated = self._cost(question, reply)
        generated.charge(reservation, used)
        entry |= {
            "response": mask.hide(reply.text), "finish": reply.finish, "answered_by": reply.model,
            "input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "cost": used.cost_nano / NANO,
            "duration_ms": _elapsed_ms(started),
        } | ({"estimated": True} if is_estimated else {}) | _describe_calls(reply.calls, mask)  # fmt: skip
        if reply.cached_tokens:
            entry["cached_tokens"] = reply.cached_tokens
        return reply, None

    def _reserve(self, question: Question, generated: Generated) -> Reservation | BudgetExceeded:
        profile = self.ready.profile
        tokens = question.estimated_tokens, question.max_tokens or DEFAULT_MAX_TOKENS
        most = UsageSum(1, *tokens, profile.cost_nano(*tokens))

        def begin() -> Reservation | BudgetExceeded:
            generated.settle(self.scope)
            try:
                return usage.reserve(self.scope, self.ready.slug, profile, self.origin, most)
            except BudgetExceeded as error:
                return error  # returned, not raised, so that what was settled is committed

        return db.write(begin)

    def _cost(self, question: Question, reply: Reply) -> tuple[UsageSum, bool]:
        """The usage, and whether it is estimated with four bytes per token because the server does not report it."""
        tokens = reply.input_tokens, reply.output_tokens
        is_estimated = min(tokens) < 0
        if is_estimated:
            written = "".join([reply.text, *(call.name + call.arguments for call in reply.calls)])
            tokens = question.estimated_tokens // 2, len(written.encode()) // 4 + 1
        return UsageSum(1, *tokens, self.ready.profile.cost_nano(*tokens)), is_estimated


@dataclass(frozen=True)
class Generation:
    """One question to one profile."""

    line: Connection
    prompt: Prompt

    @property
    def ready(self) -> OpenProfile:
        return self.line.ready

    def run(self, generated: Generated) -> ApplianceError | None:
        """Store the answer in `told`, or return the error."""
        mask = self.line.mask
        schema = check_output_schema(self.prompt.output) if self.prompt.output is not None else None
        question = _question(self.ready.profile, self.prompt, mask)
        new: Sequence[Message | ToolResult] = question.messages
        for turn in range(self.prompt.repair + 1):
            reply, error = self.line.exchange(question, new, mask, generated)
            if reply is None:
                return error
            if reply.finish != "stop":
                return to_finish_error(self.ready.slug, reply, question)
            value, problems = self._evaluate(reply, schema, mask)
            if not problems:
                generated.value = value
                return None
            generated.exchanges[-1]["problems"] = [mask.hide(problem) for problem in problems]
            if turn < self.prompt.repair:
                answer = Message("assistant", reply.text)
                new = (answer, Message("user", correction([mask.hide(problem) for problem in problems])))
                question = replace(question, messages=(*question.messages, *new))
        details = [Detail("", "answer_invalid", problem) for problem in problems]
        times = f"after {self.prompt.repair} corrections" if self.prompt.repair else "and was not asked again"
        message = Sentence(
            "the answer of the LLM profile %(slug)s does not fit its schema, %(times)s: %(problems)s",
            slug=self.ready.slug, times=times, problems=problems[0],
        )
        return AnswerInvalid(message, details=details, extra={"retryable": True})

    def _evaluate(self, reply: Reply, schema: Schema | None, mask: Mask) -> tuple[Any, list[str]]:
        """The answer's value, or the problems with it."""
        override = self.prompt.restore
        should_restore = self.ready.profile.redaction.restore if override is None else override
        if schema is None or self.prompt.output is None:
            return mask.restore(reply.text) if should_restore else reply.text, []
        try:
            value = unwrap(read_json(reply.text), self.prompt.output)
        except (ValueError, RecursionError) as error:
            return None, [f"/: This is not JSON: {str(error)[:200]}."]
        value = mask.restore(value) if should_restore else value
        return value, describe(schema.problems(value))


def patterns_of(profile: "Profile") -> tuple[tuple[str, str], ...]:
    """The (name, regular expression) pairs that the profile redacts."""
    patterns = []
    for each in profile.redaction.patterns:
        name, pattern = BUILT_IN[each.use] if each.use is not None else ("", each.pattern or "")
        patterns.append((each.name or name, pattern))
    return tuple(patterns)


def _question(profile: "Profile", prompt: Prompt, mask: Mask) -> Question:
    """The redacted question, with the schema in the form this profile supports."""
    parameters = profile.parameters
    schema = None if prompt.output is None else wrap(prompt.output)
    system = mask.hide(prompt.system)
    if schema is not None and profile.structured != "native":
        system = "\n\n".join(filter(None, (system, instructions(schema))))
    return Question(
        profile=profile,
        messages=tuple(replace(message, text=mask.hide(message.text)) for message in prompt.messages),
        system=system,
        schema=schema,
        max_tokens=prompt.max_tokens or parameters.max_tokens,
        temperature=parameters.temperature if prompt.temperature is None else prompt.temperature,
    )


def to_finish_error(slug: str, reply: Reply, question: Question) -> ApplianceError:
    """The error for a reply that was refused or cut off."""
    if reply.finish == "refused":
        reason = f": {reply.text[:300]}" if reply.text else ""
        return AnswerRefused(
            Sentence("the model of the LLM profile %(slug)s declined to answer%(said)s", slug=slug, said=reason),
            extra={"retryable": False},
        )
    limit = f" at {question.max_tokens} tokens" if question.max_tokens else ""
    message = Sentence(
        "the answer of the LLM profile %(slug)s was cut off%(limit)s; raise `max_tokens`, or ask for less", slug=slug, limit=limit
    )
    return AnswerInvalid(message, details=[Detail("", "answer_cut_off", message)], extra={"retryable": False})


def _describe_request(question: Question, new: Sequence[Message | ToolResult]) -> dict[str, Any]:
    """A request in recorded form: its new messages, with the sizes of images instead of their data."""
    description: dict[str, Any] = {"messages": [_describe_message(message) for message in new]}
    if len(new) == len(question.messages):
        description |= {"system": question.system} if question.system else {}
        description |= {"tools": [tool.name for tool in question.tools]} if question.tools else {}
    return description


def _describe_message(message: Message | ToolResult) -> dict[str, Any]:
    if isinstance(message, ToolResult):
        return {"role": "tool", "name": message.name, "call_id": message.call_id, "text": message.text}
    images = [{"media_type": each.media_type, "bytes": len(each.data) * 3 // 4} for each in message.images]
    return {"role": message.role, "text": message.text} | ({"images": images} if images else {})


def _describe_calls(calls: Sequence[ToolCall], mask: Mask) -> dict[str, Any]:
    descriptions = [{"id": call.id, "name": call.name, "arguments": mask.hide(call.arguments)} for call in calls]
    return {"calls": descriptions} if descriptions else {}


def _elapsed_ms(started: float) -> int:
    return round((clock.monotonic() - started) * 1000)
