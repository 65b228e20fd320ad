"""Records the HTTP exchanges with a real system, without secrets, and replays them strictly in tests."""

import base64
import binascii
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from appliance.connectors.contract import Http, HttpAnswer, HttpRequest, Json
from appliance.connectors.redaction import BLOT, SHORTEST, Redactor
from appliance.core.json_schema import pointer_token

_FORMAT = 1
_RECORDED_HEADERS = re.compile(
    r"content-type|link|retry-after|location|etag|last-modified|(x-)?ratelimit-[a-z-]+|x-rate-limit-[a-z-]+"
)
_SECRET_NAMES = {
    "accesstoken", "refreshtoken", "idtoken", "token", "apikey", "apitoken", "password", "passwd", "secret", "clientsecret",
    "authorization", "cookie", "setcookie", "session", "sessionid", "sessiontoken", "privatekey", "signature", "sig", "jwt",
    "xamzsignature", "xamzsecuritytoken",
}  # fmt: skip
_PARAMETER = re.compile(r"([?&;]([A-Za-z0-9_.~-]+)=)([^&;#\s\"'<>\\]+)")


class FixtureInvalid(ValueError):
    """A recording that cannot be used; the message is a sentence."""


class ReplayFailed(AssertionError):
    """A request was sent but not recorded, or recorded but not sent.  Connectors do not catch it."""


@dataclass(frozen=True)
class Exchange:
    """One request and its response, as stored in the file."""

    method: str
    url: str
    body: Any
    status: int
    headers: Mapping[str, str]
    answer: Any

    def signature(self) -> str:
        """Return the text that identifies this request: one line per part, parameters sorted."""
        body = json.dumps(self.body, indent=1, sort_keys=True, ensure_ascii=False)
        return f"{self.method} {_sorted_url(self.url)}\n{body}"


@dataclass(frozen=True)
class Recording:
    """The settings, with secrets redacted, and the exchanges made with them."""

    settings: Json
    exchanges: Sequence[Exchange] = ()

    def usable_settings(self) -> dict[str, Any]:
        """Return the settings with a placeholder value in place of each secret."""
        settings: dict[str, Any] = _with_placeholders(self.settings, "")
        return settings


# -- the file


def write_recording(path: Path, recording: Recording, secrets: Sequence[str]) -> None:
    """Write the file; FixtureInvalid when it would contain a secret."""
    entries = [
        {
            "request": {"method": each.method, "url": each.url, **({} if each.body is None else {"body": each.body})},
            "answer": {"status": each.status, "headers": dict(each.headers), "body": each.answer},
        }
        for each in recording.exchanges
    ]
    text = json.dumps({"format": _FORMAT, "settings": recording.settings, "exchanges": entries}, indent=1, ensure_ascii=False)
    short = [secret for secret in secrets if len(secret) < SHORTEST]
    if short or Redactor(secrets).text(text) != text:
        raise FixtureInvalid(
            f"{path.name} would hold a secret; take a test account whose secrets are long (at least {SHORTEST} characters)."
        )
    path.write_text(f"{text}\n", "utf-8")


def read_recording(path: Path, settings_schema: Json, secrets: Sequence[str] = ()) -> Recording:
    """Read a recording; FixtureInvalid when the file is malformed or contains a secret."""
    try:
        text = path.read_text("utf-8")
        data = json.loads(text)
        exchanges = [_exchange(each) for each in data["exchanges"]]
        recording = Recording(data["settings"], exchanges)
    except OSError as error:
        raise FixtureInvalid(f"{path.name} cannot be read; record it once against the real system.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FixtureInvalid(f"{path.name} is no recording ({type(error).__name__}: {error}); record it again.") from error
    if data.get("format") != _FORMAT:
        raise FixtureInvalid(f"{path.name} is of format {data.get('format')!r}; this kit reads {_FORMAT}. Record it again.")
    places = [pointer for pointer, value in secret_values(settings_schema, recording.settings) if value != BLOT]
    places += [f"/exchanges/{place}" for place, each in enumerate(data["exchanges"]) if Scrubber(()).json(each) != each]
    if places or Redactor(secrets).text(text) != text:
        raise FixtureInvalid(
            f"{path.name} holds a secret at {(places or ['some place'])[0]}; replace it by {BLOT}, and the secret itself."
        )
    return recording


def _exchange(entry: Mapping[str, Any]) -> Exchange:
    request, answer = entry["request"], entry["answer"]
    return Exchange(
        request["method"], request["url"], request.get("body"), answer["status"], answer.get("headers", {}), answer.get("body")
    )


def secret_values(schema: Json, value: Any, pointer: str = "") -> Iterator[tuple[str, str]]:
    """Yield the pointer and value of every string that the settings schema marks as secret."""
    if schema.get("secret") is True and isinstance(value, str):
        yield pointer, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            part = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if isinstance(part, Mapping):
                yield from secret_values(part, inner, f"{pointer}/{pointer_token(name)}")
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for place, inner in enumerate(value):
            yield from secret_values(schema["items"], inner, f"{pointer}/{place}")


def _with_placeholders(value: Any, pointer: str) -> Any:
    if value == BLOT:
        return f"made-up-secret-of{pointer.replace('/', '-')}"
    if isinstance(value, Mapping):
        return {name: _with_placeholders(inner, f"{pointer}/{name}") for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_placeholders(inner, f"{pointer}/{place}") for place, inner in enumerate(value)]
    return value


# -- scrubbing


class Scrubber:
    """Removes the settings' secrets in every encoding the appliance knows, and values whose name suggests a token."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._redactor = Redactor(secrets)

    def text(self, text: str) -> str:
        """Return a text, typically a URL, without secrets."""
        return _PARAMETER.sub(self._parameter, self._redactor.text(text))

    def json(self, value: Any, name: str = "") -> Any:
        """Return JSON without secrets; members named like a token or password are redacted."""
        if isinstance(value, str):
            return BLOT if value and _is_secret_name(name) else self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(member)): self.json(inner, str(member)) for member, inner in value.items()}
        if isinstance(value, list):
            return [self.json(inner, name) for inner in value]
        return value

    def _parameter(self, match: "re.Match[str]") -> str:
        return f"{match[1]}{BLOT}" if _is_secret_name(match[2]) else match[0]


def _is_secret_name(name: str) -> bool:
    return re.sub(r"[^a-z]", "", name.lower()) in _SECRET_NAMES


def _form_or(text: str, scrubber: Scrubber) -> Any:
    pairs = parse_qsl(text, keep_blank_values=True)
    if pairs and urlencode(pairs) == text:
        names = sorted({name for name, _ in pairs})
        return {"form": scrubber.json({name: [value for other, value in pairs if other == name] for name in names})}
    return {"text": scrubber.text(text)}


def _stored_body(content: bytes, scrubber: Scrubber) -> Any:
    """Convert a body for the file: `{"json": …}`, `{"form": …}`, `{"text": …}`, or `{"base64": …}` for anything else."""
    if not content:
        return None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": scrubber.text(base64.b64encode(content).decode("ascii"))}
    try:
        return {"json": scrubber.json(json.loads(text))}
    except ValueError:
        return _form_or(text, scrubber)


def _loaded_body(stored: Any) -> bytes:
    if stored is None:
        return b""
    if "json" in stored:
        return json.dumps(stored["json"], ensure_ascii=False).encode()
    if "form" in stored:
        return urlencode(stored["form"], doseq=True).encode()
    if "base64" in stored:
        try:
            return base64.b64decode(stored["base64"], validate=True)
        except binascii.Error as error:
            raise FixtureInvalid("A base64 body of the recording holds none.") from error
    return str(stored["text"]).encode()


def _url_of(request: HttpRequest) -> str:
    parts = urlsplit(request.url)
    query = "&".join(part for part in (parts.query, urlencode(list(request.params))) if part)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


def _sorted_url(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(
        (parts.scheme, parts.netloc, parts.path, urlencode(sorted(parse_qsl(parts.query, keep_blank_values=True))), "")
    )


# -- recording and replaying


@dataclass
class Recorder:
    """An `Http` that sends requests to the real system and records the exchanges, scrubbed at once."""

    http: Http
    scrubber: Scrubber
    exchanges: list[Exchange] = field(default_factory=list)

    def send(self, request: HttpRequest) -> HttpAnswer:
        answer = self.http.send(request)
        scrub = self.scrubber
        self.exchanges.append(
            Exchange(
                request.method.upper(),
                scrub.text(_url_of(request)),
                _stored_body(request.content, scrub),
                answer.status,
                {name: scrub.text(value) for name, value in answer.headers.items() if _RECORDED_HEADERS.fullmatch(name)},
                _stored_body(answer.content, scrub),
            )
        )
        return answer


class Player:
    """An `Http` that replays recorded responses, in any order, each as often as it was recorded; any other request fails."""

    def __init__(self, recording: Recording, settings_schema: Json) -> None:
        settings = recording.usable_settings()
        self.scrubber = Scrubber([value for _, value in secret_values(settings_schema, settings)])
        self._left: dict[str, list[Exchange]] = {}
        for each in recording.exchanges:
            self._left.setdefault(each.signature(), []).append(each)
        self._all = list(self._left)

    def send(self, request: HttpRequest) -> HttpAnswer:
        scrub = self.scrubber
        url = _url_of(request)
        sent = Exchange(request.method.upper(), scrub.text(url), _stored_body(request.content, scrub), 0, {}, None).signature()
        queue = self._left.get(sent)
        if not queue:
            raise ReplayFailed(self._unknown(sent))
        exchange = queue.pop(0)
        return HttpAnswer(exchange.status, dict(exchange.headers), _loaded_body(exchange.answer), url)

    def check_all_used(self) -> None:
        """Raise ReplayFailed when a recorded request was never sent."""
        unused = [signature.splitlines()[0] for signature, queue in self._left.items() for _ in queue]
        if unused:
            raise ReplayFailed(
                "These requests are recorded and were not sent; record again:\n" + "\n".join(f"  {each}" for each in unused)
            )

    def _unknown(self, sent: str) -> str:
        if sent in self._all:
            return f"This request was sent more often than it is recorded:\n{sent}"
        near = max(self._all, key=lambda signature: difflib.SequenceMatcher(None, signature, sent).ratio(), default="")
        diff = "\n".join(
            difflib.unified_diff(near.splitlines(), sent.splitlines(), "the nearest recorded request", "sent", lineterm="")
        )
        return f"This request is not recorded; record again, or mend the connector:\n{diff}"
