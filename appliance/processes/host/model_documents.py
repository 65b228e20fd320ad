"""Reads a tenant's documents for language models: text of text files and PDF, images unchanged."""

import base64
import json

from appliance.core.errors import Overloaded, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents import Content, Documents
from appliance.formats import Bounds, FormatFailed, Formats, Work
from appliance.llm import IMAGE_BYTES, IMAGE_TYPES, Image

TEXT_BYTES, PDF_BYTES = 1 << 20, 50 << 20
PDF_BOUNDS = Bounds(seconds=30.0, memory_mb=256, written_bytes=8 << 20)
_TEXTS = ("application/json", "application/x-ndjson", "application/xml", "application/yaml", "application/x-yaml")


class DocumentReading:
    """Reads documents for language models."""

    def __init__(self, documents: Documents, formats: Formats) -> None:
        self._documents, self._formats = documents, formats

    def read(self, scope: TenantScope, document_id: str) -> str | Image:
        """The text or image of the newest revision; raises NotFound, or ValidationFailed for an unsupported type or size."""
        content = self._documents.open_content(scope, document_id)
        if content.media_type in IMAGE_TYPES:
            return Image(content.media_type, base64.b64encode(content.read(IMAGE_BYTES)).decode())
        if content.media_type == "application/pdf":
            return self._pdf(content)
        if content.media_type.startswith("text/") or content.media_type in _TEXTS or content.media_type.endswith(("+json", "+xml")):
            return _checked(content, content.read(TEXT_BYTES).decode("utf-8", "replace").removeprefix("\ufeff"))
        raise ValidationFailed(Sentence(
            "the document %(name)s is %(media_type)s, which is neither text nor an image; read it in an earlier step",
            name=content.name, media_type=content.media_type,
        ))

    def _pdf(self, content: Content) -> str:
        if content.size > PDF_BYTES:
            most = PDF_BYTES >> 20
            raise ValidationFailed(Sentence(
                "the document %(name)s is larger than %(most)s MB; read its pages in an earlier step",
                name=content.name, most=most,
            ))
        try:
            with self._formats.scratch() as spooled:
                for piece in content.pieces(0, content.size):
                    spooled.write(piece)
                spooled.seek(0)
                with self._formats.perform(Work("parse.pdf", {}, [spooled]), PDF_BOUNDS) as answer:
                    pages = [json.loads(line)["text"] for line in answer.output]
        except FormatFailed as error:
            message = f"the document {content.name} cannot be read: {error.message}"
            raise (Overloaded if error.failure_class == "system" else ValidationFailed)(message) from error
        return _checked(content, "\n\n".join(pages))


def _checked(content: Content, text: str) -> str:
    if not text.strip():
        raise ValidationFailed(Sentence("the document %(name)s has no text; read a scan with an ocr step first", name=content.name))
    if len(text.encode("utf-8", "replace")) > TEXT_BYTES:
        most = TEXT_BYTES >> 20
        raise ValidationFailed(Sentence(
            "the document %(name)s has more than %(most)s MB of text; pass only a part of it", name=content.name, most=most
        ))
    return text
