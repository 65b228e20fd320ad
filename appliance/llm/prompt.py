"""Parses and validates the prompts of steps and step code; errors point to the wrong member.  Pure."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from appliance.core import ids
from appliance.core.database.db import dump_json
from appliance.core.errors import ValidationFailed
from appliance.core.json_schema import Schema, SchemaInvalid, compile_schema
from appliance.core.sentences import Sentence

from .tools import ToolCall

Role = Literal["user", "assistant", "system"]
ROLES: tuple[Role, ...] = ("user", "assistant", "system")
MEMBERS = (
    "profile", "prompt", "messages", "system", "input", "output", "documents", "images", "max_tokens", "temperature", "repair",
    "restore",
)  # fmt: skip
MOST_REPAIRS, DEFAULT_REPAIRS = 5, 2
MOST_MESSAGES, MOST_FILES = 200, 20
SCHEMA_BYTES, IMAGE_BYTES = 64 << 10, 10 << 20
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_DATA_URL = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,")


@dataclass(frozen=True)
class Image:
    """An image in base64."""

    media_type: str
    data: str


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    Turns of the assistant have its tool `calls`, and `thoughts`, which its provider requires back unchanged.
    """

    role: Role
    text: str
    images: tuple[Image, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    thoughts: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Prompt:
    """One question; `output` is the JSON Schema of the answer, None asks for text.

    `restore` says whether redacted values are put back into the answer; None leaves it to the profile.
    """

    profile: str
    messages: tuple[Message, ...]
    system: str = ""
    output: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    repair: int = DEFAULT_REPAIRS
    restore: bool | None = None


# Reads a document for the model, as text or as an image.
ReadDocument = Callable[[str], "str | Image"]


def refuse_documents(document_id: str) -> str | Image:
    """Refuse to read documents, where no document store is available."""
    raise ValidationFailed(Sentence(
        "the document %(document_id)s cannot be read here; put its text into the prompt", document_id=repr(document_id[:60])
    ))


def parse_prompt(data: Any, read_document: ReadDocument = refuse_documents) -> Prompt:
    """Parse a prompt; ValidationFailed points to the wrong member.

    `{profile, prompt | messages, system?, input?, output?, documents?, images?, max_tokens?, temperature?, repair?, restore?}`.
    """
    if not isinstance(data, Mapping):
        raise ValidationFailed("a prompt must be an object with `profile` and `prompt`", pointer="")
    if unknown := [name for name in data if name not in MEMBERS]:
        name = str(unknown[0])[:60]
        raise ValidationFailed(
            Sentence("a prompt has no member %(name)s; it may have %(members)s", name=repr(name), members=", ".join(MEMBERS)),
            pointer=f"/{name}",
        )
    system = _text(data["system"], "/system") if data.get("system") is not None else ""
    restore = data.get("restore")
    if restore is not None and not isinstance(restore, bool):
        raise ValidationFailed("`restore` must be true or false", pointer="/restore")
    output = data.get("output")
    if output is not None:
        check_output_schema(output)
    return Prompt(
        profile=_slug(data.get("profile")),
        messages=_with_files(_with_input(_messages(data), data), data, read_document),
        system=system,
        output=output,
        max_tokens=_parse_int(data.get("max_tokens"), "/max_tokens", 1, 1_000_000),
        temperature=_temperature(data.get("temperature")),
        repair=_repair(data.get("repair")),
        restore=restore,
    )


def check_output_schema(schema: Any) -> Schema:
    """Compile the schema of an answer; ValidationFailed if it is invalid."""
    if not isinstance(schema, Mapping) or len(dump_json(schema)) > SCHEMA_BYTES:
        raise ValidationFailed(
            Sentence(
                "`output` must be a JSON Schema, an object of at most %(schema_bytes)s KB", schema_bytes=SCHEMA_BYTES >> 10
            ),
            pointer="/output",
        )
    try:
        return compile_schema(schema)
    except SchemaInvalid as error:
        raise ValidationFailed(
            Sentence("`output` is not a valid JSON Schema: %(error)s", error=str(error)[:300]), pointer="/output"
        ) from error


def _slug(value: Any) -> str:
    if not isinstance(value, str):
        raise ValidationFailed("`profile` must be the name of an LLM profile", pointer="/profile")
    ids.check_slug(value, pointer="/profile")
    return value


def _messages(data: Mapping[str, Any]) -> tuple[Message, ...]:
    if (data.get("prompt") is None) == (data.get("messages") is None):
        raise ValidationFailed("a prompt needs either `prompt` or `messages`", pointer="/prompt")
    if data.get("prompt") is not None:
        return (Message("user", _text(data["prompt"], "/prompt")),)
    entries = data["messages"]
    if not isinstance(entries, list) or not 1 <= len(entries) <= MOST_MESSAGES:
        raise ValidationFailed(
            Sentence("`messages` must be a list of 1 to %(most_messages)s {role, content}", most_messages=MOST_MESSAGES),
            pointer="/messages",
        )
    messages = []
    for index, each in enumerate(entries):
        at = f"/messages/{index}"
        if not isinstance(each, Mapping) or set(each) != {"role", "content"} or each["role"] not in ROLES:
            raise ValidationFailed(
                Sentence("a message must be {role: %(roles)s, content: text}", roles=" | ".join(ROLES)), pointer=at
            )
        messages.append(Message(cast(Role, each["role"]), _text(each["content"], f"{at}/content")))
    if messages[-1].role != "user":
        raise ValidationFailed("the last message must have the role `user`, so that the model can answer it", pointer="/messages")
    return tuple(messages)


def _with_input(messages: tuple[Message, ...], data: Mapping[str, Any]) -> tuple[Message, ...]:
    if data.get("input") is None:
        return messages
    return _extend_last(messages, f"\n\nInput:\n{dump_json(data['input'])}", ())


def _with_files(messages: tuple[Message, ...], data: Mapping[str, Any], read: ReadDocument) -> tuple[Message, ...]:
    text, images = "", []
    for index, document_id in enumerate(_parse_ids(data.get("documents"), "/documents")):
        content = _read(read, document_id, f"/documents/{index}")
        if isinstance(content, Image):
            images.append(content)
        else:
            text += f"\n\nDocument {index + 1}:\n{content}"
    for index, reference in enumerate(_parse_ids(data.get("images"), "/images")):
        at = f"/images/{index}"
        image = _data_url(reference, at) if reference.startswith("data:") else _read(read, reference, at)
        if not isinstance(image, Image):
            raise ValidationFailed("this document is not an image; list it under `documents`", pointer=at)
        images.append(image)
    return _extend_last(messages, text, tuple(images)) if text or images else messages


def _extend_last(messages: tuple[Message, ...], text: str, images: tuple[Image, ...]) -> tuple[Message, ...]:
    last = messages[-1]
    return (*messages[:-1], Message(last.role, last.text + text, last.images + images))


def _read(read: ReadDocument, document_id: str, pointer: str) -> str | Image:
    content = read(document_id)
    return _check_image(content, pointer) if isinstance(content, Image) else content


def _data_url(text: str, pointer: str) -> Image:
    match = _DATA_URL.match(text)
    if match is None:
        raise ValidationFailed("an image must be the id of a document or a data:image/…;base64,… URL", pointer=pointer)
    image = _check_image(Image(match[1], text[match.end() :]), pointer)
    try:
        base64.b64decode(image.data, validate=True)
    except binascii.Error as error:
        raise ValidationFailed("the image's data is not valid base64", pointer=pointer) from error
    return image


def _check_image(image: Image, pointer: str) -> Image:
    if image.media_type not in IMAGE_TYPES:
        raise ValidationFailed(
            Sentence(
                "the image is %(media_type)s; models accept %(image_types)s",
                media_type=image.media_type[:60], image_types=", ".join(IMAGE_TYPES),
            ),
            pointer=pointer,
        )
    if len(image.data) * 3 // 4 > IMAGE_BYTES:
        raise ValidationFailed(
            Sentence("the image is larger than %(image_bytes)s MB; make it smaller", image_bytes=IMAGE_BYTES >> 20), pointer=pointer
        )
    return image


def _parse_ids(value: Any, pointer: str) -> Sequence[str]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MOST_FILES or not all(isinstance(each, str) and each for each in value):
        raise ValidationFailed(
            Sentence("`%(pointer)s` must be a list of at most %(most_files)s ids", pointer=pointer[1:], most_files=MOST_FILES),
            pointer=pointer,
        )
    return value


def _text(value: Any, pointer: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValidationFailed(
            Sentence("`%(member)s` must be a text and not empty", member=pointer.rpartition("/")[2]), pointer=pointer
        )
    return value


def _parse_int(value: Any, pointer: str, low: int, high: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValidationFailed(
            Sentence("`%(pointer)s` must be a whole number from %(low)s to %(high)s", pointer=pointer[1:], low=low, high=high),
            pointer=pointer,
        )
    return value


def _repair(value: Any) -> int:
    count = _parse_int(value, "/repair", 0, MOST_REPAIRS)
    return DEFAULT_REPAIRS if count is None else count


def _temperature(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
        raise ValidationFailed("`temperature` must be a number from 0 to 2", pointer="/temperature")
    return float(value)
