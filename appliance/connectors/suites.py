"""Optional parts of the contract suite that a plugin's tests mix in with `ConnectorContract`.

    class TestStockRoom(Recorded, Compatible, ConnectorContract):
        connector = StockRoomConnector
        recording = Path(__file__).parent / "recording.json"
        declaration = Path(__file__).parent.parent / "declaration.json"

A recording is made by running the tests once with the settings of a test account in the environment, as JSON:
CONNECTOR_SETTINGS_STOCK_ROOM='{"base_url": "https://…", "token": "…"}'.
"""

# ruff: noqa: S101 - this is a test suite

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from appliance.connectors.context import CallContext
from appliance.connectors.contract import (
    AuthError,
    Connector,
    ConnectorError,
    Context,
    Http,
    HttpAnswer,
    HttpRequest,
    RateLimited,
    TransientError,
)
from appliance.connectors.development.compatibility import broken_promises, declaration_of
from appliance.connectors.recording import (
    Player,
    Recorder,
    Recording,
    Scrubber,
    read_recording,
    secret_values,
    write_recording,
)
from appliance.connectors.redaction import Redactor
from appliance.connectors.testing import LOOPBACK, Answer, LoopbackServer, open_context, schema_problems
from appliance.core.config import environment


@dataclass(frozen=True)
class ContextWith(CallContext):
    """A real context with its HTTP client replaced."""

    instead: Http | None = None

    @property
    def http(self) -> Http:
        return self.instead or super().http


def context_with(ctx: CallContext, http: Http) -> ContextWith:
    """Return `ctx` with its HTTP client replaced by `http`."""
    return ContextWith(**{**vars(ctx), "instead": http})


class Unreachable:
    """An `Http` whose every connection fails."""

    def send(self, request: HttpRequest) -> HttpAnswer:
        raise TransientError(f"{request.url.split('?')[0]} does not accept connections.")


@dataclass(frozen=True)
class Redirected:
    """An `Http` that sends every request to one URL of a test server."""

    http: Http
    url: str

    def send(self, request: HttpRequest) -> HttpAnswer:
        return self.http.send(replace(request, url=self.url, params=(), follow_redirects=False))


def run_everything(connector: Connector, ctx: Context) -> None:
    """Run the check, every action's sample, and two polls of every trigger."""
    assert connector.check(ctx)
    for action in connector.actions:
        output = connector.call(action.name, dict(action.sample), ctx)
        assert schema_problems(action.output, output) == [], action.name
    for trigger in connector.triggers:
        first = connector.poll(trigger.name, dict(trigger.sample), None, ctx)
        again = connector.poll(trigger.name, dict(trigger.sample), json.loads(json.dumps(first.cursor)), ctx)
        keys = [item.key for polled in (first, again) for item in polled.items]
        assert len(set(keys)) == len(keys), f"{trigger.name} answered an item twice"


_recorded_now: set[Path] = set()
"""The files already recorded in this test run; each is recorded once."""


class Recorded:
    """Runs the contract suite on exchanges recorded from a real system; list it before `ConnectorContract`."""

    connector: type[Connector]
    recording: ClassVar[Path]

    @pytest.fixture
    def recorded(self) -> Recording:
        raw_settings = environment(f"CONNECTOR_SETTINGS_{self.connector.name.upper().replace('-', '_')}")
        secrets: list[str] = []
        if raw_settings is not None:
            settings = json.loads(raw_settings)
            secrets = [value for _, value in secret_values(self.connector.settings_schema, settings)]
            if self.recording not in _recorded_now:
                record(self.connector, settings, self.recording)
                _recorded_now.add(self.recording)
        return read_recording(self.recording, self.connector.settings_schema, secrets)

    @pytest.fixture
    def settings(self, recorded: Recording) -> dict[str, Any]:
        return recorded.usable_settings()

    @pytest.fixture
    def broken_settings(self, recorded: Recording) -> dict[str, Any]:
        return recorded.usable_settings()

    @pytest.fixture
    def player(self, recorded: Recording) -> Player:
        return Player(recorded, self.connector.settings_schema)

    @pytest.fixture
    def ctx(self, player: Player) -> Iterator[CallContext]:
        with open_context() as real:
            yield context_with(real, player)

    def test_check_fails_with_an_error_of_the_contract(self, broken_settings: dict[str, Any], ctx: CallContext) -> None:
        broken = self.connector(broken_settings)
        with pytest.raises(ConnectorError) as caught:
            broken.check(context_with(ctx, Unreachable()))
        broken.close()
        assert type(caught.value) is not ConnectorError

    def test_what_is_recorded_is_what_is_asked(self, it: Connector, ctx: CallContext, player: Player) -> None:
        run_everything(it, ctx)
        player.check_all_used()


def record(connector: type[Connector], settings: dict[str, Any], file: Path) -> None:
    """Run everything once against the real system and write the exchanges to a file, without secrets."""
    secrets = [value for _, value in secret_values(connector.settings_schema, settings)]
    scrubber = Scrubber(secrets)
    it = connector(settings)
    try:
        with open_context(seconds=600) as real:
            recorder = Recorder(real.http, scrubber)
            run_everything(it, context_with(real, recorder))
    finally:
        it.close()
    write_recording(file, Recording(scrubber.json(settings), recorder.exchanges), secrets)


class Credentialed:
    """Tests that wrong credentials raise an AuthError whose message contains none of them."""

    connector: type[Connector]

    @pytest.fixture
    def wrong_settings(self) -> dict[str, Any]:
        raise NotImplementedError("give settings whose credentials the system refuses")

    def test_wrong_credentials_are_an_auth_error(self, wrong_settings: dict[str, Any], ctx: Context) -> None:
        wrong = self.connector(wrong_settings)
        with pytest.raises(AuthError) as caught:
            wrong.check(ctx)
        wrong.close()
        secrets = [value for _, value in secret_values(self.connector.settings_schema, wrong_settings)]
        assert Redactor(secrets).text(caught.value.message) == caught.value.message


class Faulty:
    """Tests the handling of faulty HTTP responses: the error class, the deadline, and that no secret appears in a message."""

    connector: type[Connector]

    @pytest.fixture
    def faulty(self) -> Iterator[LoopbackServer]:
        """A server that receives all requests in place of the system."""
        server = LoopbackServer()
        yield server
        server.close()

    def _errors(self, settings: dict[str, Any], server: LoopbackServer, seconds: float = 10.0) -> list[ConnectorError]:
        """Return the errors of the check and of each action's sample, each run on a new connector."""
        errors = []
        samples = {action.name: dict(action.sample) for action in self.connector.actions}
        for name in ("", *samples):
            it = self.connector(settings)
            with open_context(allow=LOOPBACK, seconds=seconds) as real:
                ctx = context_with(real, Redirected(real.http, f"{server.url}/"))
                try:
                    _ = it.call(name, samples[name], ctx) if name else it.check(ctx)
                except ConnectorError as error:
                    errors.append(error)
                finally:
                    it.close()
        return errors

    def test_a_system_that_asks_for_patience_is_rate_limited(self, faulty: LoopbackServer, settings: dict[str, Any]) -> None:
        faulty.answers["/"] = lambda _: Answer(429, {"Retry-After": "77"})
        errors = self._errors(settings, faulty)
        assert errors
        assert {type(error) for error in errors} == {RateLimited}
        assert {getattr(error, "retry_after", None) for error in errors} == {77.0}

    def test_a_silent_system_costs_the_deadline_and_no_more(self, faulty: LoopbackServer, settings: dict[str, Any]) -> None:
        released = faulty.hold("/")
        try:
            errors = self._errors(settings, faulty, 0.1)
        finally:
            released.set()
        assert len(errors) == 1 + len(self.connector.actions)
        assert {type(error) for error in errors} == {TransientError}

    @pytest.mark.parametrize("status", [200, 400, 401, 500])
    def test_no_secret_is_said(
        self, faulty: LoopbackServer, settings: dict[str, Any], status: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Covers a system that echoes requests: the appliance redacts details, but messages must contain no secret at all."""
        caplog.set_level(logging.DEBUG)
        faulty.answers["/"] = lambda request: Answer(status, {}, f"<{request.headers} {request.path} {request.body!r}>".encode())
        redactor = Redactor([value for _, value in secret_values(self.connector.settings_schema, settings)])
        errors = self._errors(settings, faulty)
        assert errors
        texts = [*(error.message for error in errors), repr(self.connector(settings)), caplog.text]
        assert [text for text in texts if redactor.text(text) != text] == []


class Compatible:
    """Tests that the last release's declaration still holds, unless the major version is new."""

    connector: type[Connector]
    declaration: ClassVar[Path]

    def test_it_keeps_what_the_last_release_promised(self) -> None:
        assert self.declaration.is_file(), f"{self.declaration.name} is missing; write it: gos connector declare"
        old = json.loads(self.declaration.read_text("utf-8"))
        if broken := broken_promises(old, json.loads(json.dumps(declaration_of(self.connector)))):
            anew = f"If no release has promised this yet, write {self.declaration.name} anew: gos connector declare <folder>"
            pytest.fail("\n".join([*broken, anew]), pytrace=False)
