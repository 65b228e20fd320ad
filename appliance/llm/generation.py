"""One question until it has an answer that fits: asked, judged against its schema, corrected a few times, and all of it told."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.connectors.egress import EgressClient
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AnswerInvalid, AnswerRefused, ApplianceError, BudgetExceeded, Detail
from appliance.core.json_schema import Schema
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from . import usage
from .client import Ready, ask, is_free
from .exchange import Question, Reply
from .profile import DEFAULT_MAX_TOKENS, Profile
from .prompt import Message, Prompt, check_output_schema
from .redaction import BUILT_IN, Mask
from .structured import correction, describe, instructions, read_json, unwrap, wrap
from .tools import ToolCall, ToolResult
from .usage import NANO, Origin, Reservation, Used


@dataclass
class Generated:
    """What a question came to: its value, or an error; every exchange as it may be recorded (redacted), and what it cost.

    `settle` has to run inside the write that records it.
    """

    value: Any = None
    error: ApplianceError | None = None
    exchanges: list[dict[str, Any]] = field(default_factory=list)
    used: Used = field(default_factory=Used)
    owed: list[tuple[Reservation, Used | None]] = field(default_factory=list)

    @property
    def retry_after(self) -> float | None:
        """How long the provider wants to be left alone, in seconds."""
        return None if self.error is None else self.error.extra.get("retry_after")

    def settle(self, scope: TenantScope) -> None:
        """Inside a write: the calls are over; once is enough, twice does no harm."""
        for reservation, used in self.owed:
            usage.settle(scope, reservation, used)

    def told(self) -> dict[str, Any]:
        """The trace as the journal keeps it."""
        sums = {"calls": self.used.calls, "input_tokens": self.used.input_tokens, "output_tokens": self.used.output_tokens}
        return {"exchanges": self.exchanges, "usage": sums | {"cost": self.used.cost_nano / NANO}}

    def owe(self, reservation: Reservation, used: Used | None) -> None:
        self.owed.append((reservation, used))
        self.used = self.used.plus(reservation.most if used is None else used)


@dataclass(frozen=True)
class Line:
    """The way to one profile for one caller; `also` are patterns to be redacted beside the profile's own."""

    scope: TenantScope
    client: EgressClient
    ready: Ready
    origin: Origin
    ends: float
    also: tuple[tuple[str, str], ...] = ()

    @property
    def mask(self) -> Mask:
        """A fresh one, for one conversation."""
        return Mask((*self.also, *patterns_of(self.ready.profile)))

    def exchange(
        self, question: Question, new: Sequence[Message | ToolResult], mask: Mask, told: Generated
    ) -> tuple[Reply | None, ApplianceError | None]:
        """One question and its reply, booked and noted in `told`; `new` is what of it was not noted before."""
        reservation = self._reserve(question, told)
        if isinstance(reservation, BudgetExceeded):
            return None, reservation
        began = clock.monotonic()
        noted: dict[str, Any] = {
            "profile": self.ready.slug, "model": self.ready.profile.model, "request": _shown(question, new),
        }  # fmt: skip
        told.exchanges.append(noted)
        try:
            reply = ask(self.client, self.ready, question, self.ends)
        except ApplianceError as error:
            told.owe(reservation, Used() if is_free(error) else None)
            noted |= {"error": {"code": error.code, "message": mask.hide(error.message)}, "duration_ms": _since(began)}
            return None, error
        used, is_estimated = self._cost(question, reply)
        told.owe(reservation, used)
        noted |= {
            "response": mask.hide(reply.text), "finish": reply.finish, "answered_by": reply.model,
            "input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "cost": used.cost_nano / NANO,
            "duration_ms": _since(began),
        } | ({"estimated": True} if is_estimated else {}) | _shown_calls(reply.calls, mask)  # fmt: skip
        if reply.cached_tokens:
            noted["cached_tokens"] = reply.cached_tokens
        return reply, None

    def _reserve(self, question: Question, told: Generated) -> Reservation | BudgetExceeded:
        profile = self.ready.profile
        tokens = question.estimated_tokens, question.max_tokens or DEFAULT_MAX_TOKENS
        most = Used(1, *tokens, profile.cost_nano(*tokens))

        def begin() -> Reservation | BudgetExceeded:
            told.settle(self.scope)
            try:
                return usage.reserve(self.scope, self.ready.slug, profile, self.origin, most)
            except BudgetExceeded as error:
                return error  # and what has been settled stays so

        return db.write(begin)

    def _cost(self, question: Question, reply: Reply) -> tuple[Used, bool]:
        """What it came to; where the server does not count, four bytes of text are a token."""
        tokens = reply.input_tokens, reply.output_tokens
        is_estimated = min(tokens) < 0
        if is_estimated:
            written = "".join([reply.text, *(call.name + call.arguments for call in reply.calls)])
            tokens = question.estimated_tokens // 2, len(written.encode()) // 4 + 1
        return Used(1, *tokens, self.ready.profile.cost_nano(*tokens)), is_estimated


@dataclass(frozen=True)
class Asking:
    """One question to one profile."""

    line: Line
    prompt: Prompt

    @property
    def ready(self) -> Ready:
        return self.line.ready

    def run(self, told: Generated) -> ApplianceError | None:
        """Notes the answer in `told`; what went wrong otherwise."""
        mask = self.line.mask
        schema = check_output_schema(self.prompt.output) if self.prompt.output is not None else None
        question = _question(self.ready.profile, self.prompt, mask)
        new: Sequence[Message | ToolResult] = question.messages
        for turn in range(self.prompt.repair + 1):
            reply, error = self.line.exchange(question, new, mask, told)
            if reply is None:
                return error
            if reply.finish != "stop":
                return broken_off(self.ready.slug, reply, question)
            value, problems = self._judge(reply, schema, mask)
            if not problems:
                told.value = value
                return None
            told.exchanges[-1]["problems"] = [mask.hide(problem) for problem in problems]
            if turn < self.prompt.repair:
                said = Message("assistant", reply.text)
                new = (said, Message("user", correction([mask.hide(problem) for problem in problems])))
                question = replace(question, messages=(*question.messages, *new))
        details = [Detail("", "answer_invalid", problem) for problem in problems]
        times = f"after {self.prompt.repair} corrections" if self.prompt.repair else "and was not asked again"
        message = Sentence(
            "the answer of the LLM profile %(slug)s does not fit its schema, %(times)s: %(problems)s",
            slug=self.ready.slug, times=times, problems=problems[0],
        )
        return AnswerInvalid(message, details=details, extra={"retryable": True})

    def _judge(self, reply: Reply, schema: Schema | None, mask: Mask) -> tuple[Any, list[str]]:
        """The answer's value, or what is wrong with it."""
        asked = self.prompt.restore
        restores = self.ready.profile.redaction.restore if asked is None else asked
        if schema is None or self.prompt.output is None:
            return mask.restore(reply.text) if restores else reply.text, []
        try:
            value = unwrap(read_json(reply.text), self.prompt.output)
        except (ValueError, RecursionError) as error:
            return None, [f"/: This is no JSON: {str(error)[:200]}."]
        value = mask.restore(value) if restores else value
        return value, describe(schema.problems(value))


def patterns_of(profile: Profile) -> tuple[tuple[str, str], ...]:
    """(name, regular expression) of what the profile keeps back."""
    found = []
    for each in profile.redaction.patterns:
        name, pattern = BUILT_IN[each.use] if each.use is not None else ("", each.pattern or "")
        found.append((each.name or name, pattern))
    return tuple(found)


def _question(profile: Profile, prompt: Prompt, mask: Mask) -> Question:
    """What leaves: without what the patterns find, with the schema as this profile is told it."""
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


def broken_off(slug: str, reply: Reply, question: Question) -> ApplianceError:
    """What to say of a reply that is none, or half of one."""
    if reply.finish == "refused":
        said = f": {reply.text[:300]}" if reply.text else ""
        return AnswerRefused(
            Sentence("the model of the LLM profile %(slug)s declined to answer%(said)s", slug=slug, said=said),
            extra={"retryable": False},
        )
    limit = f" at {question.max_tokens} tokens" if question.max_tokens else ""
    message = Sentence(
        "the answer of the LLM profile %(slug)s was cut off%(limit)s; raise max_tokens, or ask for less", slug=slug, limit=limit
    )
    return AnswerInvalid(message, details=[Detail("", "answer_cut_off", message)], extra={"retryable": False})


def _shown(question: Question, new: Sequence[Message | ToolResult]) -> dict[str, Any]:
    """A request as it is recorded: what is new in it, and of pictures how large they are."""
    shown: dict[str, Any] = {"messages": [_shown_message(message) for message in new]}
    if len(new) == len(question.messages):
        shown |= {"system": question.system} if question.system else {}
        shown |= {"tools": [tool.name for tool in question.tools]} if question.tools else {}
    return shown


def _shown_message(message: Message | ToolResult) -> dict[str, Any]:
    if isinstance(message, ToolResult):
        return {"role": "tool", "name": message.name, "call_id": message.call_id, "text": message.text}
    images = [{"media_type": each.media_type, "bytes": len(each.data) * 3 // 4} for each in message.images]
    return {"role": message.role, "text": message.text} | ({"images": images} if images else {})


def _shown_calls(calls: Sequence[ToolCall], mask: Mask) -> dict[str, Any]:
    shown = [{"id": call.id, "name": call.name, "arguments": mask.hide(call.arguments)} for call in calls]
    return {"calls": shown} if shown else {}


def _since(began: float) -> int:
    return round((clock.monotonic() - began) * 1000)
