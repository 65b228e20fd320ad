"""Secrets blotted out of texts and JSON, in the encodings they commonly appear in."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from appliance.connectors.schemas import pointer_token

BLOT = "[redacted]"
SHORTEST = 6  # shorter values would blot out ordinary words


class Redactor:
    """Blots secrets out of what is recorded, logged and handed back, in the encodings they commonly appear in."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms: list[str] = []
        self.learnt: list[str] = []
        self._know(secrets)

    def learn(self, secret: str) -> None:
        """Blot out this one as well, from now on: a token that came during the call."""
        if secret not in self.learnt:
            self.learnt.append(secret)
            self._know([secret])

    def _know(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _forms(secret) if len(form) >= SHORTEST}
        self._forms = sorted(forms.union(self._forms), key=len, reverse=True)

    def text(self, text: str) -> str:
        """`text` without the secrets."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, BLOT)
        return text

    def json(self, value: Any) -> Any:
        """A JSON value whose texts, member names included, are without the secrets."""
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
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield pointer_token(secret)
    # In base64 the secret may begin at any of three positions of a group; what surrounds it changes its edges only.
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + secret.encode()).decode("ascii").rstrip("=")
        yield encoded[(0, 2, 3)[shift] : len(encoded) - (len(encoded) % 4 != 0)]
