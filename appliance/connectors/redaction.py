"""Redacts secrets in texts and JSON, in the encodings they commonly appear in.

Redaction is a second line of defence: a foreign system that knows a secret can return it reordered or encrypted, which cannot
be detected.  The first line is that secrets are sent only to targets an authorized person has bound them to
(`tenants/grants/secret_bindings.py`).
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from appliance.core.json_schema import pointer_token

BLOT = "[redacted]"
SHORTEST = 6  # redacting shorter values would remove ordinary words
_ESCAPE = re.compile("%[0-9A-F]{2}")
_URL_SAFE = str.maketrans("+/", "-_")


class Redactor:
    """Redacts secrets in what is recorded, logged and returned, in the encodings they commonly appear in."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms: list[str] = []
        self.learnt: list[str] = []
        self._add(secrets)

    def learn(self, secret: str) -> None:
        """Redact this secret too from now on, such as a token obtained during the call."""
        if secret not in self.learnt:
            self.learnt.append(secret)
            self._add([secret])

    def _add(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _forms(secret) if len(form) >= SHORTEST}
        self._forms = sorted(forms.union(self._forms), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return `text` with secrets redacted."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, BLOT)
        return text

    def json(self, value: Any) -> Any:
        """Return a JSON value with secrets redacted in all strings, including member names."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.json(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(inner) for inner in value]
        return value


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield secret[::-1]
    for encoded in (quote(secret, safe=""), quote(secret), quote_plus(secret), _every_byte(secret)):
        yield encoded
        yield _ESCAPE.sub(lambda match: match[0].lower(), encoded)
    for once in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield once
        yield json.dumps(once)[1:-1]  # JSON inside a JSON string
    yield pointer_token(secret)
    yield html.escape(secret)
    yield secret.encode().hex()
    yield secret.encode().hex().upper()
    # In base64 the secret may start at any of three positions of a group; the surrounding bytes change only its edges.
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + secret.encode()).decode("ascii").rstrip("=")
        part = encoded[(0, 2, 3)[shift] : len(encoded) - (len(encoded) % 4 != 0)]
        yield part
        yield part.translate(_URL_SAFE)


def _every_byte(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())
