"""Runs one call on a live connector, with a deadline, logging, and secrets redacted."""

import json
import logging
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from appliance.connectors import NothingLeaves, OAuth, PreviewContext, TenantFolders, Traffic, oauth_of, preview, redact_request
from appliance.connectors.context import Admit, BoundHttp, CallContext, NoDocuments
from appliance.connectors.contract import (
    Action,
    Connector,
    ConnectorError,
    Context,
    Documents,
    Effect,
    HttpRequest,
    Item,
    Json,
    Level,
    Polled,
    SystemFailure,
)
from appliance.connectors.egress import EgressClient
from appliance.connectors.network import resolving_for
from appliance.connectors.oauth import ASK_SECONDS, TokenAnswer, request_by_code
from appliance.connectors.registry import Unusable, check_discovered
from appliance.core import clock, logs
from appliance.core.database import db
from appliance.core.errors import Overloaded
from appliance.core.json_schema import Schema
from appliance.integrations.connections import Connections, OpenedIntegration
from appliance.integrations.tokens import TokenStore

T = TypeVar("T")
LogSink = Callable[[Level, str, Json], None]
HIDDEN_LINE = "the connector wrote a line here; a rule hides what this integration says"
_CHECK_SECONDS = 20.0
DISCOVERY_BYTES = 32 << 20
"""A description of a whole system may be larger than the answer to a single request."""

_log = logging.getLogger(__name__)


class TimedDocuments(Protocol):
    """The documents of a call that has not begun yet."""

    def until(self, deadline: float) -> Documents:
        """The documents, usable until the deadline, in monotonic seconds."""


@dataclass(frozen=True)
class CallSpec:
    """A call to make: `key` is the idempotency key sent to the foreign system, `seconds` its time limit."""

    action: Action
    input: Json
    key: str
    seconds: float
    sink: LogSink
    traffic: Traffic = field(default_factory=Traffic)
    documents: TimedDocuments | None = None
    hides_output: bool = False
    """Whether the foreign system's words must not appear in any log, because rules redact part of them."""
    admit: Admit | None = None


@dataclass(frozen=True)
class PollSpec:
    """A poll to make: `query` and `cursor` are the trigger's; `is_discreet` as for a `CallSpec`."""

    trigger: str
    query: Json
    cursor: Any
    seconds: float
    hides_output: bool = False
    admit: Admit | None = None


@dataclass(frozen=True)
class _RunSpec:
    """The parameters a connector runs with."""

    key: str
    seconds: float
    sink: LogSink
    traffic: Traffic = field(default_factory=Traffic)
    documents: TimedDocuments | None = None
    is_discreet: bool = False
    admit: Admit | None = None


def log_to_process(level: Level, message: str, fields: Json) -> None:
    """The log sink for a connector's lines outside executions."""
    _log.log(logging.getLevelNamesMapping()[level.upper()], "%s", message, extra={"fields": dict(fields)})


class Calls:
    """Makes calls; knows nothing of records, policies or retries."""

    def __init__(self, connections: Connections, tokens: TokenStore) -> None:
        self._connections = connections
        self.tokens = tokens
        self._stopping = threading.Event()

    def effect_of(self, ready: OpenedIntegration, action: Action, input_values: Json) -> Effect:
        """The effect of this particular call."""

        def ask() -> Effect:
            with self._connections.use(ready) as live:
                return live.connector.effect_of(action, input_values)

        return _with_contract_errors(ready, ask)

    def make(self, ready: OpenedIntegration, shot: CallSpec) -> dict[str, Any]:
        """Run an action; returns its output with the integration's secrets redacted.  ConnectorError as in the contract.

        Any other exception of a plugin, or output that violates its contract or schema, becomes a SystemFailure with an unknown
        outcome: the call was made, and an unexpected answer does not prove success.
        """

        def act(connector: Connector, ctx: Context) -> dict[str, Any]:
            output = connector.perform(shot.action, shot.input, ctx)
            if not isinstance(output, dict):
                raise TypeError(f"the action answered {type(output).__name__}, not an object")
            answer = _storable(output)
            _check_schema(ready, ready.installed.output_of(shot.action), answer, f"the action {shot.action.name}")
            return answer

        answer = self._run_spec_on(ready, _run_spec(shot), act)
        output: dict[str, Any] = ready.redactor.json(answer)
        return output

    def preview(self, ready: OpenedIntegration, shot: CallSpec) -> list[preview.SentRequest]:
        """The first HTTP request of the call with secrets redacted; empty if its connector does not support previews.

        Uses a separate connector instance, so that no open connection can be used.  ConnectorError as `make`.
        """
        return _with_contract_errors(
            ready, lambda: [redact_request(ready.redactor, each) for each in _preview_requests(ready, shot)]
        )

    def first_request(self, ready: OpenedIntegration, shot: CallSpec) -> HttpRequest | None:
        """The first HTTP request of the call, unredacted; None if its connector does not support previews.

        ConnectorError as `make`.  It contains credentials: it must not be stored or shown.
        """
        return _with_contract_errors(ready, lambda: next(iter(_preview_requests(ready, shot)), None))

    def poll(self, ready: OpenedIntegration, shot: PollSpec) -> Polled:
        """Poll a trigger; returns its items with secrets redacted.  ConnectorError as in the contract."""

        def act(connector: Connector, ctx: Context) -> Polled:
            polled = connector.poll(shot.trigger, shot.query, shot.cursor, ctx)
            if type(polled) is not Polled or not all(type(item.key) is str and item.key for item in polled.items):
                raise TypeError("the trigger answered something that is not Polled, or an item without a key")
            items = []
            for item in polled.items:
                data = _storable(dict(item.data))
                _check_schema(ready, ready.installed.items[shot.trigger], data, f"an item of the trigger {shot.trigger}")
                items.append(Item(_storable(item.key), ready.redactor.json(data)))
            return Polled(items, _storable(polled.cursor), bool(polled.more))

        terms = _RunSpec(f"poll {shot.trigger}", shot.seconds, log_to_process, is_discreet=shot.hides_output, admit=shot.admit)
        return self._run_spec_on(ready, terms, act)

    def check(self, ready: OpenedIntegration) -> str:
        """The connector's message about its settings; ConnectorError if they do not work."""

        def act(connector: Connector, ctx: Context) -> str:
            return str(connector.check(ctx))

        return ready.redactor.text(self._run(ready, "check", _CHECK_SECONDS, log_to_process, act))

    def discover(self, ready: OpenedIntegration, seconds: float) -> list[Action]:
        """The actions discovered in the foreign system besides the declared ones, secrets redacted; ConnectorError."""
        client = EgressClient(replace(self._connections.egress, max_answer_bytes=DISCOVERY_BYTES))

        def act(connector: Connector, ctx: CallContext) -> list[Action]:
            actions = list(connector.discover(replace(ctx, client=client)))
            try:
                check_discovered(ready.installed, actions)
            except Unusable as finding:
                raise SystemFailure(f"What {ready.connector_label} discovered cannot be used: {finding}") from finding
            return [_redact_action(ready, each) for each in actions]

        try:
            return self._run(ready, "discover", seconds, log_to_process, act)
        finally:
            client.close()

    def oauth_of(self, ready: OpenedIntegration) -> OAuth | None:
        """The OAuth 2 settings of the integration's credentials; None if they are of another kind."""
        return _with_contract_errors(ready, lambda: oauth_of(ready.auth))

    def exchange_code(self, ready: OpenedIntegration, oauth: OAuth, granted: tuple[str, str, str]) -> TokenAnswer:
        """Exchange an authorization code, given with its verifier and redirect URI, for tokens; ConnectorError."""

        def run() -> TokenAnswer:
            with self._connections.use(ready) as live:
                return request_by_code(BoundHttp(live.client, clock.monotonic() + ASK_SECONDS), oauth, *granted)

        for secret in granted[:2]:
            ready.redactor.learn(secret)
        return _with_contract_errors(ready, run)

    def stop(self) -> None:
        """Interrupt pauses and close idle connectors; calls in progress run to their deadline."""
        self._stopping.set()
        self._connections.close()

    def _run(
        self, ready: OpenedIntegration, key: str, seconds: float, sink: LogSink, act: Callable[[Connector, CallContext], T]
    ) -> T:
        return self._run_spec_on(ready, _RunSpec(key, seconds, sink), act)

    def _run_spec_on(self, ready: OpenedIntegration, terms: _RunSpec, act: Callable[[Connector, CallContext], T]) -> T:
        def quiet_sink(level: Level, message: str, fields: Json) -> None:
            if terms.is_discreet:
                message, fields = HIDDEN_LINE, {}
            terms.sink(level, ready.redactor.text(message), ready.redactor.json(dict(fields)))

        def run() -> T:
            with self._connections.use(ready) as live, resolving_for(ready.tenant_id):
                until = clock.monotonic() + terms.seconds
                folders = TenantFolders(self._connections.folders, ready.tenant_id)
                ctx = CallContext(
                    self._connections.egress, live.client, terms.key, until, quiet_sink, self._stopping,
                    folders=folders, traffic=terms.traffic, tokens=self.tokens.tokens_of(ready, live.client),
                    documents=terms.documents.until(until) if terms.documents else NoDocuments(), admit=terms.admit,
                )  # fmt: skip
                return act(live.connector, ctx)

        return _with_contract_errors(ready, run, is_discreet=terms.is_discreet)


def _preview_requests(ready: OpenedIntegration, shot: CallSpec) -> list[HttpRequest]:
    """Run the call up to its first request, on a separate connector instance, so that no open connection can be used."""
    if not ready.installed.connector.previews:
        return []
    connector, ctx = ready.installed.connector(ready.settings), PreviewContext(shot.key)
    try:
        connector.perform(shot.action, shot.input, ctx)
    except NothingLeaves:
        return ctx.requests
    finally:
        connector.close()
    return []


def _redact_action(ready: OpenedIntegration, action: Action) -> Action:
    """The action without secrets, in a form that can be stored."""
    parts: Any = [action.summary, action.input, action.output, action.sample, action.plan, action.withheld]
    text = db.dump_json(parts)
    if not text.isascii() or ready.redactor.text(text) != text:
        parts = ready.redactor.json(_storable(parts))
    return Action(
        name=action.name, summary=parts[0], input=parts[1], output=parts[2], effect=action.effect, sample=parts[3], plan=parts[4],
        withheld=parts[5],
    )


def _storable(value: T) -> T:
    """The value as plain JSON, without lone surrogates, which foreign systems may send but UTF-8 cannot encode."""
    cleaned: T = json.loads(db.dump_json(value).encode("utf-8", "replace"))
    return cleaned


def _check_schema(ready: OpenedIntegration, schema: Schema, value: Any, what: str) -> None:
    """SystemFailure at the first violation of the connector's own schema; the message contains no value."""
    try:
        problem = schema.first_problem(value, namespace=ready.tenant_id)
    except Overloaded as refusal:
        message = f"{ready.slug} answered, but the answer could not be validated: {refusal.message}"
        raise SystemFailure(message, outcome="unknown") from refusal
    if problem:
        where = problem.pointer or "/"
        raise SystemFailure(
            f"{ready.slug} returned an answer that violates its connector's schema: {what}, at {where}: {problem.message} "
            f"Check what the foreign system sends; if it is correct, {ready.connector_label} needs a fixed release.",
            outcome="unknown",
            details={"pointer": where, "rule": problem.code},
        )


def _run_spec(shot: CallSpec) -> _RunSpec:
    return _RunSpec(
        key=shot.key, seconds=shot.seconds, sink=shot.sink, traffic=shot.traffic, documents=shot.documents,
        is_discreet=shot.hides_output, admit=shot.admit,
    )


def _with_contract_errors(ready: OpenedIntegration, act: Callable[[], T], *, is_discreet: bool = False) -> T:
    """Redact secrets from contract errors; log a plugin's bug in full and convert it to a SystemFailure.

    With `is_discreet`, the log omits the exception's message, which may quote the foreign system.
    """
    try:
        return act()
    except ConnectorError as error:
        error.message = ready.redactor.text(_storable(error.message))
        error.details = ready.redactor.json(_storable(json.loads(json.dumps(error.details, default=str))))
        error.args = (error.message,)
        raise
    except (Exception, SystemExit) as error:
        for secret in ready.redactor.learnt:
            logs.remember_secret(secret)  # only on failure: tokens change too often to remember every one
        if is_discreet:
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error(
                "the connector %s failed with an internal error (%s)\n%s", ready.connector_label, type(error).__name__, where
            )
        else:
            _log.exception("the connector %s failed with an internal error", ready.connector_label)
        raise SystemFailure(
            f"The connector {ready.connector_label} failed with an internal error ({type(error).__name__}); see the log.",
            outcome="unknown",
        ) from error
