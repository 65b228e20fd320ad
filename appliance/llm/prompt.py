"""What is asked of a model: read from what a step or step code says, with every wrong member pointed at.  Pure."""

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
    """A picture, in base64."""

    media_type: str
    data: str


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    Of the assistant's: `calls` are the tools that it asked for, `thoughts` what its provider wants back as it came.
    """

    role: Role
    text: str
    images: tuple[Image, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    thoughts: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Prompt:
    """One question; `output` is JSON Schema of the answer, None asks for text.

    `restore`: whether what was redacted is put back into the answer; None leaves that to the profile.
    """

    profile: str
    messages: tuple[Message, ...]
    system: str = ""
    output: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    repair: int = DEFAULT_REPAIRS
    restore: bool | None = None


# What of a document goes to the model: text, or a picture.
ReadDocument = Callable[[str], "str | Image"]


def refuse_documents(document_id: str) -> str | Image:
    """Where there is no store of documents."""
    raise ValidationFailed(Sentence(
        "the document %(document_id)s cannot be read here; give its text in the prompt", document_id=repr(document_id[:60])
    ))


def parse_prompt(given: Any, read_document: ReadDocument = refuse_documents) -> Prompt:
    """The prompt; ValidationFailed points at what is wrong with it.

    `{profile, prompt | messages, system?, input?, output?, documents?, images?, max_tokens?, temperature?, repair?, restore?}`.
    """
    if not isinstance(given, Mapping):
        raise ValidationFailed("a question to a model is an object with profile and prompt", pointer="")
    if unknown := [name for name in given if name not in MEMBERS]:
        name = str(unknown[0])[:60]
        raise ValidationFailed(
            Sentence("a question to a model has no %(name)s; it has %(members)s", name=repr(name), members=", ".join(MEMBERS)),
            pointer=f"/{name}",
        )
    system = _text(given["system"], "/system") if given.get("system") is not None else ""
    restore = given.get("restore")
    if restore is not None and not isinstance(restore, bool):
        raise ValidationFailed("restore is true or false", pointer="/restore")
    output = given.get("output")
    if output is not None:
        check_output_schema(output)
    return Prompt(
        profile=_slug(given.get("profile")),
        messages=_with_files(_with_input(_messages(given), given), given, read_document),
        system=system,
        output=output,
        max_tokens=_whole(given.get("max_tokens"), "/max_tokens", 1, 1_000_000),
        temperature=_temperature(given.get("temperature")),
        repair=_repair(given.get("repair")),
        restore=restore,
    )


def check_output_schema(given: Any) -> Schema:
    """The compiled schema of an answer; ValidationFailed when it is none."""
    if not isinstance(given, Mapping) or len(dump_json(given)) > SCHEMA_BYTES:
        raise ValidationFailed(
            Sentence("output is a JSON Schema, an object of at most %(schema_bytes)s KB", schema_bytes=SCHEMA_BYTES >> 10),
            pointer="/output",
        )
    try:
        return compile_schema(given)
    except SchemaInvalid as error:
        raise ValidationFailed(
            Sentence("output is no JSON Schema that can be used: %(error)s", error=str(error)[:300]), pointer="/output"
        ) from error


def _slug(given: Any) -> str:
    if not isinstance(given, str):
        raise ValidationFailed("profile is the name of an LLM profile", pointer="/profile")
    ids.check_slug(given, pointer="/profile")
    return given


def _messages(given: Mapping[str, Any]) -> tuple[Message, ...]:
    if (given.get("prompt") is None) == (given.get("messages") is None):
        raise ValidationFailed("a question has either `prompt` or `messages`", pointer="/prompt")
    if given.get("prompt") is not None:
        return (Message("user", _text(given["prompt"], "/prompt")),)
    listed = given["messages"]
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_MESSAGES:
        raise ValidationFailed(
            Sentence("messages are a list of 1 to %(most_messages)s {role, content}", most_messages=MOST_MESSAGES),
            pointer="/messages",
        )
    found = []
    for index, each in enumerate(listed):
        at = f"/messages/{index}"
        if not isinstance(each, Mapping) or set(each) != {"role", "content"} or each["role"] not in ROLES:
            raise ValidationFailed(Sentence("a message is {role: %(roles)s, content: text}", roles=' | '.join(ROLES)), pointer=at)
        found.append(Message(cast(Role, each["role"]), _text(each["content"], f"{at}/content")))
    if found[-1].role != "user":
        raise ValidationFailed("the last message is the user's, for the model to answer it", pointer="/messages")
    return tuple(found)


def _with_input(messages: tuple[Message, ...], given: Mapping[str, Any]) -> tuple[Message, ...]:
    if given.get("input") is None:
        return messages
    return _extend_last(messages, f"\n\nInput:\n{dump_json(given['input'])}", ())


def _with_files(messages: tuple[Message, ...], given: Mapping[str, Any], read: ReadDocument) -> tuple[Message, ...]:
    text, images = "", []
    for index, document_id in enumerate(_listed(given.get("documents"), "/documents")):
        found = _read(read, document_id, f"/documents/{index}")
        if isinstance(found, Image):
            images.append(found)
        else:
            text += f"\n\nDocument {index + 1}:\n{found}"
    for index, named in enumerate(_listed(given.get("images"), "/images")):
        at = f"/images/{index}"
        image = _data_url(named, at) if named.startswith("data:") else _read(read, named, at)
        if not isinstance(image, Image):
            raise ValidationFailed("this document is no picture; name it under documents", pointer=at)
        images.append(image)
    return _extend_last(messages, text, tuple(images)) if text or images else messages


def _extend_last(messages: tuple[Message, ...], text: str, images: tuple[Image, ...]) -> tuple[Message, ...]:
    last = messages[-1]
    return (*messages[:-1], Message(last.role, last.text + text, last.images + images))


def _read(read: ReadDocument, document_id: str, pointer: str) -> str | Image:
    found = read(document_id)
    return _checked(found, pointer) if isinstance(found, Image) else found


def _data_url(text: str, pointer: str) -> Image:
    match = _DATA_URL.match(text)
    if match is None:
        raise ValidationFailed("an image is the id of a document or a data:image/…;base64,… URL", pointer=pointer)
    image = _checked(Image(match[1], text[match.end() :]), pointer)
    try:
        base64.b64decode(image.data, validate=True)
    except binascii.Error as error:
        raise ValidationFailed("this image's data is no base64", pointer=pointer) from error
    return image


def _checked(image: Image, pointer: str) -> Image:
    if image.media_type not in IMAGE_TYPES:
        raise ValidationFailed(
            Sentence(
                "models take %(image_types)s, not %(media_type)s",
                image_types=", ".join(IMAGE_TYPES), media_type=image.media_type[:60],
            ),
            pointer=pointer,
        )
    if len(image.data) * 3 // 4 > IMAGE_BYTES:
        raise ValidationFailed(
            Sentence("an image has at most %(image_bytes)s MB; make it smaller", image_bytes=IMAGE_BYTES >> 20), pointer=pointer
        )
    return image


def _listed(given: Any, pointer: str) -> Sequence[str]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MOST_FILES or not all(isinstance(each, str) and each for each in given):
        raise ValidationFailed(
            Sentence("%(pointer)s is a list of at most %(most_files)s ids", pointer=pointer[1:], most_files=MOST_FILES),
            pointer=pointer,
        )
    return given


def _text(given: Any, pointer: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ValidationFailed(
            Sentence("%(rpartition)s is a text that is not empty", rpartition=pointer.rpartition("/")[2]), pointer=pointer
        )
    return given


def _whole(given: Any, pointer: str, low: int, high: int) -> int | None:
    if given is None:
        return None
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        raise ValidationFailed(
            Sentence("%(pointer)s is a whole number from %(low)s to %(high)s", pointer=pointer[1:], low=low, high=high),
            pointer=pointer,
        )
    return given


def _repair(given: Any) -> int:
    found = _whole(given, "/repair", 0, MOST_REPAIRS)
    return DEFAULT_REPAIRS if found is None else found


def _temperature(given: Any) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 2:
        raise ValidationFailed("temperature is a number from 0 to 2", pointer="/temperature")
    return float(given)
