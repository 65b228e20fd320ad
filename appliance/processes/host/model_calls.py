"""Prompts of steps to language models: parsing them in a definition, sending them, and recording the answers.

A prompt has no side effects but costs money; after a crash in the middle it is sent again.  An answer and its cost are
recorded in one transaction.  The journal shows each exchange as it was sent (redacted); it stores the value that the code
received sealed, and the prompt itself as a digest.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.connectors.egress import Egress
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import NotFound, PayloadTooLarge, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance import kill_switches, subject_of
from appliance.llm import MEMBERS, MOST_REPAIRS, Generated, Image, LanguageModels, Origin, check_output_schema, parse_prompt
from appliance.processes.definitions.nodes import Grants
from appliance.processes.definitions.reader import Reader
from appliance.processes.definitions.template import Template
from appliance.processes.engine.store import Claim, JournalEntry
from appliance.processes.engine.suspension import RunKey

from .call_errors import error_object, try_call
from .grant_checks import check_document_grant
from .vault import SECRET, Vault

__all__ = [
    "GENERATE",
    "Generated",
    "ModelCalls",
    "answer_model_call",
    "check_model_grant",
    "check_prompt",
    "no_models",
    "parse_llm_step",
    "place_of",
    "recorded_args",
    "replay_answer",
    "split_answer",
]  # fmt: skip
GENERATE = "llm.generate"
USAGE = "call api.llm.generate({profile, prompt, …})"
_LITERAL = ("profile", "output", "repair", "restore")

# Reads a tenant's document in the form in which it is sent to a model.
ReadDocument = Callable[[TenantScope, str], "str | Image"]


@dataclass(frozen=True)
class ModelCalls:
    """Sends the prompts of steps to language models."""

    models: LanguageModels
    read_document: ReadDocument | None = None

    def has_profile(self, claim: Claim, slug: str) -> bool:
        """Whether the tenant has the profile."""
        return self.models.has_profile(claim.scope, slug)

    def ask(self, claim: Claim, raw_prompt: Any, where: str, ends: float) -> Generated:
        """Sends a prompt; raises ValidationFailed when it is malformed, NotFound when its profile does not exist.

        `where` names the calling place in the execution, `ends` is the deadline for the answer (monotonic seconds).
        """
        read = self.read_document
        prompt = parse_prompt(raw_prompt, *(() if read is None else [lambda document_id: read(claim.scope, document_id)]))
        kill_switches.check_not_switched_off(claim.scope, subject_of(claim.scope))
        return self.models.generate(claim.scope, prompt, Origin(claim.execution_id, where), ends)


def no_models(sealer: Sealer) -> ModelCalls:
    """For use without wiring: profiles can be stored; they have no secrets and reach public addresses only."""

    def no_secret(scope: TenantScope, name: str) -> str:
        raise NotFound(Sentence("there is no secret %(name)s here", name=repr(name[:80])))

    return ModelCalls(LanguageModels(Egress.of([]), sealer, no_secret))


# -- definitions


def parse_llm_step(reader: Reader, value: Any, pointer: str) -> tuple[dict[str, Any], dict[str, Template]]:
    """Parses an `llm` step into settings and templates; the answer's schema is literal, so that publishing can check it."""
    members = reader.mapping(value, pointer, MEMBERS, ("profile",))
    profile = reader.slug(members["profile"], f"{pointer}/profile") if "profile" in members else ""
    if ("prompt" in members) == ("messages" in members):
        reader.problem(pointer, "give either `prompt` or `messages`")
    if "output" in members:
        try:
            check_output_schema(members["output"])
        except ValidationFailed as error:
            reader.problem(f"{pointer}/output", error.message)
    restore = members.get("restore")
    if restore is not None and not isinstance(restore, bool):
        reader.problem(f"{pointer}/restore", "this must be true or false")
    repair = reader.integer(members.get("repair"), f"{pointer}/repair", 0, MOST_REPAIRS)
    template = reader.template({name: each for name, each in members.items() if name not in _LITERAL}, pointer)
    dynamic = {place[0] for place, _ in template.slots}
    if isinstance(template.value, dict) and len(reader.problems) == 0:
        _check_literal_parts(reader, {"profile": profile, **template.value}, dynamic, pointer)
    settings = {"profile": profile, "output": members.get("output"), "repair": repair, "restore": restore}
    return settings, {"arguments": template}


def _check_literal_parts(reader: Reader, members: Mapping[str, Any], dynamic: set[str | int], pointer: str) -> None:
    """Validates the literal parts of a prompt; expressions are validated when they have a value."""
    stand_ins = {"prompt": "prompt", "messages": [{"role": "user", "content": "prompt"}]}
    literal = {name: stand_ins.get(name) if name in dynamic else each for name, each in members.items()}
    try:
        check_prompt(literal)
    except ValidationFailed as error:
        reader.problem(f"{pointer}{error.details[0].pointer if error.details else ''}", error.message)


def check_prompt(prompt: Any) -> None:
    """Raises ValidationFailed for a malformed prompt; the documents it names are not read."""
    parse_prompt(prompt, lambda document_id: Image("image/png", ""))


# -- calls of code


def check_model_grant(grants: Grants, args: list[Any]) -> Any:
    """The prompt of a call; raises PolicyDenied unless the grants allow its profile and the documents it names."""
    match args:
        case [{"profile": str() as profile} as prompt]:
            pass
        case _:
            raise ValidationFailed(USAGE, pointer="/profile")
    if profile not in grants.llm:
        name = profile[:63]
        raise PolicyDenied(Sentence("this step has no grant for the LLM profile %(name)s; add grants: llm: [%(name)s]", name=name))
    if reads_documents(prompt):
        check_document_grant(grants, "read")
    return prompt


def reads_documents(prompt: Mapping[str, Any]) -> bool:
    """Whether a prompt reads documents of the tenant."""
    images = prompt.get("images")
    inline = isinstance(images, list) and all(isinstance(each, str) and each.startswith("data:") for each in images)
    return bool(prompt.get("documents")) or not (inline or not images)


def answer_model_call(
    models: ModelCalls, claim: Claim, grants: Grants, request: tuple[RunKey, int, list[Any]], limits: tuple[float, int]
) -> tuple[bool, Any]:
    """Sends a prompt of step code; returns (True, its result, even a failed one) or (False, the error object) if it was refused.

    `limits` are the deadline for the answer and its maximum size.
    """
    (path, iteration, _), call, args = request
    ends, most = limits

    def ask() -> Generated:
        generated = models.ask(claim, check_model_grant(grants, args), place_of(path, iteration, call), ends)
        size = len(db.dump_json(generated.value))
        if size > most:
            generated.error = PayloadTooLarge(Sentence(
                "api.%(generate)s returned %(size)s bytes; a step can receive at most %(most)s; request less",
                generate=GENERATE, size=size, most=most,
            ))
        return generated

    return try_call(ask)


def place_of(path: str, iteration: str, call: int) -> str:
    """The place of a prompt in its execution; the same when it is sent again after a crash."""
    return ".".join(part for part in (path, iteration, str(call)) if part)


# -- recording


def recorded_args(method: str, args: Any) -> Any:
    """Arguments as the journal stores them: of a prompt only its profile and a digest, by which a changed prompt is noticed."""
    if method != GENERATE:
        return args
    text = json.dumps(args, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    prompt = args[0] if isinstance(args, list) and args and isinstance(args[0], Mapping) else {}
    return [{"profile": prompt.get("profile"), "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"}]


def split_answer(vault: Vault, call: int, generated: Generated) -> tuple[bool, Any, Any]:
    """(ok, the value for the code, the journal's answer): the journal has the exchanges for people, and the value sealed."""
    if generated.error is not None:
        error = error_object(generated.error)
        return False, error, error | generated.to_journal()
    return True, generated.value, vault.seal(call, db.dump_json(generated.value)) | generated.to_journal()


def replay_answer(vault: Vault, entry: JournalEntry) -> Any:
    """The value that code receives for a recorded answer: unsealed, and without the parts recorded for people."""
    if entry.method == GENERATE and not entry.ok:
        return {name: each for name, each in entry.answer.items() if name not in ("exchanges", "usage")}
    if not entry.ok or entry.method not in (GENERATE, SECRET):
        return entry.answer
    opened = vault.unseal(entry.call, entry.answer)
    return json.loads(opened) if entry.method == GENERATE else opened
