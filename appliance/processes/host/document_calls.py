"""`api.documents.*`, and one entry point for all data that steps store: collections and documents."""

import base64
import binascii
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import PayloadTooLarge, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents import Content, Document, Documents, NewDocument
from appliance.processes.engine.store import Claim

from .protocols import Data

SPACE = "documents."
_NEW = ("name", "content", "encoding", "media_type", "folder", "tags")
_READ = ("encoding", "revision")


class StoredData:
    """Performs the DataPool and document calls of code."""

    def __init__(self, collections: Data, documents: Documents, answer_bytes: int) -> None:
        self._collections = collections
        self._documents = documents
        self._answer_bytes = answer_bytes

    def perform(self, claim: Claim, method: str, args: list[Any]) -> Any:
        """Performs a call and returns its answer as JSON."""
        return self.prepare(claim, method, args)()

    def prepare(self, claim: Claim, method: str, args: list[Any]) -> Callable[[], Any]:
        """Does what must precede the transaction, such as storing a document's bytes; returns the rest as a callable."""
        if not method.startswith(SPACE):
            return partial(self._collections.perform, claim, method, args)
        return {"get": self._get, "read": self._read, "create": self._create}[method.removeprefix(SPACE)](claim.scope, args)

    def _get(self, scope: TenantScope, args: list[Any]) -> Callable[[], Any]:
        document_id, _ = _id_and_options("get", args, ())
        return lambda: to_view(self._documents.get_document(scope, document_id))

    def _read(self, scope: TenantScope, args: list[Any]) -> Callable[[], Any]:
        document_id, options = _id_and_options("read", args, _READ)
        revision, encoding = options.get("revision"), options.get("encoding")
        if revision is not None and (not isinstance(revision, int) or isinstance(revision, bool) or not 0 < revision < 2**31):
            raise ValidationFailed("revision must be a number of 1 or more", pointer="/revision")
        _check_encoding(encoding)
        return lambda: self._answer(self._documents.open_content(scope, document_id, revision), encoding)

    def _answer(self, content: Content, encoding: str | None) -> dict[str, Any]:
        most = self._answer_bytes
        if content.size <= most:
            text, encoding_used = _encoded(content.read(most), encoding)
            answer = {
                "id": content.document_id, "name": content.name, "media_type": content.media_type, "size": content.size,
                "sha256": content.sha256, "revision": content.revision, "encoding": encoding_used, "content": text,
            }  # fmt: skip
            if len(db.dump_json(answer)) <= most:
                return answer
        raise PayloadTooLarge(Sentence(
            "the document %(document_id)s has %(size)s bytes; code can receive at most %(most)s at once, as "
            "text or base64; pass it to a step that takes documents, or raise limits.step_answer_kb",
            document_id=content.document_id, size=content.size, most=most,
        ))

    def _create(self, scope: TenantScope, args: list[Any]) -> Callable[[], Any]:
        match args:
            case [Mapping() as values] if {"name", "content"} <= values.keys() and values.keys() <= set(_NEW):
                pass
            case _:
                raise ValidationFailed("call api.documents.create({name, content, encoding?, media_type?, folder?, tags?})")
        new = _new_document(values)
        content = self._documents.store_content(scope, _decoded(values["content"], values.get("encoding")))
        return lambda: to_view(self._documents.create_document(scope, new, content))


def to_view(document: Document) -> dict[str, Any]:
    """A document as returned to code."""
    return {
        "id": document.id, "name": document.name, "folder": document.folder, "tags": list(document.tags),
        "media_type": document.media_type, "size": document.size, "sha256": document.sha256, "revision": document.revision,
        "created_at": clock.rfc3339(document.created_at), "updated_at": clock.rfc3339(document.updated_at),
    }  # fmt: skip


def _id_and_options(verb: str, args: list[Any], option_names: tuple[str, ...]) -> tuple[str, Mapping[str, Any]]:
    usage = Sentence(
        "call api.documents.%(verb)s(id%(known)s)",
        verb=verb, known=", {" + ", ".join(f"{name}?" for name in option_names) + "}" if option_names else "",
    )
    match args:
        case [str() as document_id]:
            return document_id, {}
        case [str() as document_id, None | []] if option_names:  # PHP cannot tell an empty object from an empty list
            return document_id, {}
        case [str() as document_id, Mapping() as options] if option_names and options.keys() <= set(option_names):
            return document_id, options
    raise ValidationFailed(usage)


def _check_encoding(encoding: Any) -> None:
    if encoding not in (None, "text", "base64"):
        raise ValidationFailed("encoding must be text or base64", pointer="/encoding")


def _encoded(data: bytes, encoding: str | None) -> tuple[str, str]:
    """(content, encoding): text where the bytes are UTF-8 and base64 was not requested, else base64."""
    if encoding != "base64":
        try:
            return data.decode("utf-8-sig"), "text"
        except UnicodeDecodeError as error:
            if encoding == "text":
                raise ValidationFailed("the content is not UTF-8 text; read it as base64", pointer="/encoding") from error
    return base64.b64encode(data).decode(), "base64"


def _decoded(content: Any, encoding: Any) -> bytes:
    _check_encoding(encoding)
    if not isinstance(content, str):
        raise ValidationFailed("content must be a text; give bytes as base64, with encoding: base64", pointer="/content")
    try:
        return base64.b64decode(content, validate=True) if encoding == "base64" else content.encode()
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        kind = "base64" if encoding == "base64" else "text that can be written as UTF-8"
        raise ValidationFailed(Sentence("content is not %(kind)s", kind=kind), pointer="/content") from error


def _new_document(values: Mapping[str, Any]) -> NewDocument:
    for name in ("name", "media_type", "folder"):
        if not isinstance(values.get(name, ""), str | None) or (name == "name" and not values[name]):
            raise ValidationFailed(Sentence("%(name)s must be a text", name=name), pointer=f"/{name}")
    tags = values.get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValidationFailed("tags must be a list of texts", pointer="/tags")
    return NewDocument(values["name"], values.get("media_type"), values.get("folder") or "", tuple(tags))
