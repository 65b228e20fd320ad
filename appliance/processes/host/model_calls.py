"""Questions of steps to language models: what a definition may say of them, who is asked, and what the journal keeps.

A question is read-only over there but costs money: after a crash in the middle it is asked again.  What was answered is
recorded with what it cost, in one commit.  The journal shows each exchange as it left (redacted); the value that code was
given, and the question's own text, stand there sealed or as a digest.
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
from appliance.governance import subject_of, switches
from appliance.llm import MEMBERS, MOST_REPAIRS, Generated, Image, LanguageModels, Origin, check_output_schema, parse_prompt
from appliance.processes.definitions.nodes import Grants
from appliance.processes.definitions.reading import Reader
from appliance.processes.definitions.template import Template
from appliance.processes.engine.store import Claim, JournalEntry
from appliance.processes.engine.suspension import RunKey

from .faults import attempt, fault_of
from .granting import need_documents
from .vault import SECRET, Vault

__all__ = [
    "GENERATE", "Generated", "ModelReach", "answer_code", "check_prompt", "given_again", "need_model", "no_models", "place_of",
    "read_llm", "recorded_args", "told_code",
]  # fmt: skip
GENERATE = "llm.generate"
SHOWN = "call api.llm.generate({profile, prompt, …})"
_LITERAL = ("profile", "output", "repair", "restore")

# What of a tenant's document goes to a model.
ReadDocument = Callable[[TenantScope, str], "str | Image"]


@dataclass(frozen=True)
class ModelReach:
    """Language models as steps reach them."""

    models: LanguageModels
    read_document: ReadDocument | None = None

    def has_profile(self, claim: Claim, slug: str) -> bool:
        """Whether the tenant has the profile."""
        return self.models.has_profile(claim.scope, slug)

    def ask(self, claim: Claim, given: Any, where: str, ends: float) -> Generated:
        """What the question came to; ValidationFailed when it is none, NotFound without its profile.

        `where` names the place in the execution that asks, `ends` is when the answer must be there (monotonic).
        """
        read = self.read_document
        prompt = parse_prompt(given, *(() if read is None else [lambda document_id: read(claim.scope, document_id)]))
        switches.refuse_switched_off(claim.scope, subject_of(claim.scope))
        return self.models.generate(claim.scope, prompt, Origin(claim.execution_id, where), ends)


def no_models(sealer: Sealer) -> ModelReach:
    """Where nothing is wired: profiles can be kept, and lead to public addresses only."""

    def no_secret(scope: TenantScope, name: str) -> str:
        raise NotFound(Sentence("there is no secret %(name)s here", name=repr(name[:80])))

    return ModelReach(LanguageModels(Egress.of([]), sealer, no_secret))


# -- what a definition says


def read_llm(reader: Reader, value: Any, pointer: str) -> tuple[dict[str, Any], dict[str, Template]]:
    """The members of an `llm` step; the schema of the answer is literal, so that it can be judged when it is published."""
    given = reader.mapping(value, pointer, MEMBERS, ("profile",))
    profile = reader.slug(given["profile"], f"{pointer}/profile") if "profile" in given else ""
    if ("prompt" in given) == ("messages" in given):
        reader.problem(pointer, "a question has either `prompt` or `messages`")
    if "output" in given:
        try:
            check_output_schema(given["output"])
        except ValidationFailed as error:
            reader.problem(f"{pointer}/output", error.message)
    restore = given.get("restore")
    if restore is not None and not isinstance(restore, bool):
        reader.problem(f"{pointer}/restore", "this must be true or false")
    repair = reader.whole(given.get("repair"), f"{pointer}/repair", 0, MOST_REPAIRS)
    template = reader.template({name: each for name, each in given.items() if name not in _LITERAL}, pointer)
    dynamic = {place[0] for place, _ in template.slots}
    if isinstance(template.value, dict) and len(reader.problems) == 0:
        _check_written(reader, {"profile": profile, **template.value}, dynamic, pointer)
    settings = {"profile": profile, "output": given.get("output"), "repair": repair, "restore": restore}
    return settings, {"arguments": template}


def _check_written(reader: Reader, given: Mapping[str, Any], dynamic: set[str | int], pointer: str) -> None:
    """What is written out must be right; an expression is looked at when it has a value."""
    stand_ins = {"prompt": "prompt", "messages": [{"role": "user", "content": "prompt"}]}
    written = {name: stand_ins.get(name) if name in dynamic else each for name, each in given.items()}
    try:
        check_prompt(written)
    except ValidationFailed as error:
        reader.problem(f"{pointer}{error.details[0].pointer if error.details else ''}", error.message)


def check_prompt(given: Any) -> None:
    """ValidationFailed where a question is none, whatever the documents hold that it names."""
    parse_prompt(given, lambda document_id: Image("image/png", ""))


# -- what code asks


def need_model(grants: Grants, args: list[Any]) -> Any:
    """The question; PolicyDenied unless its profile is granted, and the documents that it names."""
    match args:
        case [{"profile": str() as profile} as given]:
            pass
        case _:
            raise ValidationFailed(SHOWN, pointer="/profile")
    if profile not in grants.llm:
        name = profile[:63]
        raise PolicyDenied(Sentence("this step has no grant for the LLM profile %(name)s; add grants: llm: [%(name)s]", name=name))
    if names_documents(given):
        need_documents(grants, "read")
    return given


def names_documents(given: Mapping[str, Any]) -> bool:
    """Whether a question reads documents of the tenant."""
    images = given.get("images")
    inline = isinstance(images, list) and all(isinstance(each, str) and each.startswith("data:") for each in images)
    return bool(given.get("documents")) or not (inline or not images)


def answer_code(
    models: ModelReach, claim: Claim, grants: Grants, asked: tuple[RunKey, int, list[Any]], limits: tuple[float, int]
) -> tuple[bool, Any]:
    """(True, what step code's question came to, even if that is an error) or (False, the fault) of one that was not asked.

    `limits` are when the answer must be there, and how large it may be.
    """
    (path, iteration, _), call, args = asked
    ends, most = limits

    def ask() -> Generated:
        generated = models.ask(claim, need_model(grants, args), place_of(path, iteration, call), ends)
        size = len(db.dump_json(generated.value))
        if size > most:
            generated.error = PayloadTooLarge(Sentence(
                "api.%(generate)s answered %(size)s bytes, a step is given at most %(most)s; ask for less",
                generate=GENERATE, size=size, most=most,
            ))
        return generated

    return attempt(ask)


def place_of(path: str, iteration: str, call: int) -> str:
    """Where in the execution a question is asked; the same when it is asked again."""
    return ".".join(part for part in (path, iteration, str(call)) if part)


# -- what is recorded


def recorded_args(method: str, args: Any) -> Any:
    """Arguments as the journal keeps them: of a question to a model its profile and a digest, which tells another question."""
    if method != GENERATE:
        return args
    text = json.dumps(args, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    given = args[0] if isinstance(args, list) and args and isinstance(args[0], Mapping) else {}
    return [{"profile": given.get("profile"), "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"}]


def told_code(vault: Vault, call: int, generated: Generated) -> tuple[bool, Any, Any]:
    """(ok, what code is given, what the journal keeps): the exchanges for people, the value sealed for a re-run."""
    if generated.error is not None:
        fault = fault_of(generated.error)
        return False, fault, fault | generated.told()
    return True, generated.value, vault.seal(call, db.dump_json(generated.value)) | generated.told()


def given_again(vault: Vault, entry: JournalEntry) -> Any:
    """What code is given of a recorded answer: what is kept sealed opened, what is kept for people left out."""
    if entry.method == GENERATE and not entry.ok:
        return {name: each for name, each in entry.answer.items() if name not in ("exchanges", "usage")}
    if not entry.ok or entry.method not in (GENERATE, SECRET):
        return entry.answer
    opened = vault.unseal(entry.call, entry.answer)
    return json.loads(opened) if entry.method == GENERATE else opened
