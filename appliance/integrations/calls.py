"""The road to a foreign system: one call on a live connector, with deadline, log and secrets blotted out."""

import json
import logging
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from appliance.connectors import NothingLeaves, OAuth, PreviewContext, TenantFolders, Traffic, oauth_of, preview, shown_request
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
from appliance.connectors.oauth import ASK_SECONDS, TokenAnswer, by_code
from appliance.connectors.registry import Unusable, check_discovered
from appliance.core import clock, logs
from appliance.core.database import db
from appliance.core.errors import Overloaded
from appliance.core.json_schema import Schema
from appliance.integrations.connections import Connections, Ready
from appliance.integrations.tokens import TokenKeeper

T = TypeVar("T")
LogSink = Callable[[Level, str, Json], None]
HIDDEN_LINE = "the connector wrote a line here; a rule hides what this integration says"
_CHECK_SECONDS = 20.0
DISCOVERY_BYTES = 32 << 20
"""An answer that describes a whole system may be larger than one about a thing in it."""

_log = logging.getLogger(__name__)


class TimedDocuments(Protocol):
    """The documents of a call that has not begun."""

    def until(self, deadline: float) -> Documents:
        """Usable until the deadline, in monotonic seconds."""


@dataclass(frozen=True)
class Shot:
    """One call to be made: `key` is what the foreign system sees, `seconds` the time it may take."""

    action: Action
    input: Json
    key: str
    seconds: float
    sink: LogSink
    traffic: Traffic = field(default_factory=Traffic)
    documents: TimedDocuments | None = None
    is_discreet: bool = False
    """Whether nothing that the foreign system says may be in any log, because rules hide a part of it."""
    admit: Admit | None = None


@dataclass(frozen=True)
class PollShot:
    """One poll to be made: `query` and `cursor` are the trigger's; `is_discreet` as for a `Shot`."""

    trigger: str
    query: Json
    cursor: Any
    seconds: float
    is_discreet: bool = False
    admit: Admit | None = None


@dataclass(frozen=True)
class _Terms:
    """What a connector is run with."""

    key: str
    seconds: float
    sink: LogSink
    traffic: Traffic = field(default_factory=Traffic)
    documents: TimedDocuments | None = None
    is_discreet: bool = False
    admit: Admit | None = None


def log_to_process(level: Level, message: str, fields: Json) -> None:
    """Where a connector's lines go when no execution takes them."""
    _log.log(logging.getLevelNamesMapping()[level.upper()], "%s", message, extra={"fields": dict(fields)})


class Calls:
    """Makes calls; knows nothing of records, policies or retries."""

    def __init__(self, connections: Connections, tokens: TokenKeeper) -> None:
        self._connections = connections
        self.tokens = tokens
        self._stopping = threading.Event()

    def effect_of(self, ready: Ready, action: Action, given: Json) -> Effect:
        """The effect of this very call."""

        def ask() -> Effect:
            with self._connections.use(ready) as live:
                return live.connector.effect_of(action, given)

        return _guarded(ready, ask)

    def make(self, ready: Ready, shot: Shot) -> dict[str, Any]:
        """The action's output with the integration's secrets blotted out; ConnectorError as the contract has it.

        Whatever else a plugin raises, or answers against its contract or its action's `output`, becomes a SystemFailure
        of unknown outcome: the call was made, and a success that is not what was promised proves nothing.
        """

        def act(connector: Connector, ctx: Context) -> dict[str, Any]:
            output = connector.perform(shot.action, shot.input, ctx)
            if not isinstance(output, dict):
                raise TypeError(f"the action answered {type(output).__name__}, not an object")
            answer = _storable(output)
            _hold_to(ready, ready.installed.output_of(shot.action), answer, f"the action {shot.action.name}")
            return answer

        answer = self._run_noted(ready, _terms_of(shot), act)
        output: dict[str, Any] = ready.redactor.json(answer)
        return output

    def preview(self, ready: Ready, shot: Shot) -> list[preview.SentRequest]:
        """The HTTP request that the call would send first, secrets blotted out; none where its connector cannot tell.

        The connector is one of its own, so that nothing open already can be used.  ConnectorError as `make`.
        """
        return _guarded(ready, lambda: [shown_request(ready.redactor, each) for each in _rehearse(ready, shot)])

    def first_request(self, ready: Ready, shot: Shot) -> HttpRequest | None:
        """The HTTP request that the call would send first, as it is; None where its connector cannot tell.

        ConnectorError as `make`.  It carries credentials: nothing of it may be kept or shown.
        """
        return _guarded(ready, lambda: next(iter(_rehearse(ready, shot)), None))

    def poll(self, ready: Ready, shot: PollShot) -> Polled:
        """What a trigger found, secrets blotted out of its items; ConnectorError as the contract has it."""

        def act(connector: Connector, ctx: Context) -> Polled:
            found = connector.poll(shot.trigger, shot.query, shot.cursor, ctx)
            if type(found) is not Polled or not all(type(item.key) is str and item.key for item in found.items):
                raise TypeError("the trigger answered something that is not Polled, or an item without a key")
            items = []
            for item in found.items:
                data = _storable(dict(item.data))
                _hold_to(ready, ready.installed.items[shot.trigger], data, f"an item of the trigger {shot.trigger}")
                items.append(Item(_storable(item.key), ready.redactor.json(data)))
            return Polled(items, _storable(found.cursor), bool(found.more))

        terms = _Terms(f"poll {shot.trigger}", shot.seconds, log_to_process, is_discreet=shot.is_discreet, admit=shot.admit)
        return self._run_noted(ready, terms, act)

    def check(self, ready: Ready) -> str:
        """What the connector says about its settings; ConnectorError when they do not work."""

        def act(connector: Connector, ctx: Context) -> str:
            return str(connector.check(ctx))

        return ready.redactor.text(self._run(ready, "check", _CHECK_SECONDS, log_to_process, act))

    def discover(self, ready: Ready, seconds: float) -> list[Action]:
        """The actions the integration's system has beside the declared ones, secrets blotted out; ConnectorError."""
        client = EgressClient(replace(self._connections.egress, max_answer_bytes=DISCOVERY_BYTES))

        def act(connector: Connector, ctx: CallContext) -> list[Action]:
            found = list(connector.discover(replace(ctx, client=client)))
            try:
                check_discovered(ready.installed, found)
            except Unusable as finding:
                raise SystemFailure(f"What {ready.connector_label} discovered cannot be used: {finding}") from finding
            return [_blotted(ready, each) for each in found]

        try:
            return self._run(ready, "discover", seconds, log_to_process, act)
        finally:
            client.close()

    def oauth_of(self, ready: Ready) -> OAuth | None:
        """The OAuth 2 part of the integration's credentials; None when they are of another kind."""
        return _guarded(ready, lambda: oauth_of(ready.auth))

    def exchange_code(self, ready: Ready, oauth: OAuth, granted: tuple[str, str, str]) -> TokenAnswer:
        """The tokens of an authorization code, given with its verifier and redirect address; ConnectorError."""

        def run() -> TokenAnswer:
            with self._connections.use(ready) as live:
                return by_code(BoundHttp(live.client, clock.monotonic() + ASK_SECONDS), oauth, *granted)

        for secret in granted[:2]:
            ready.redactor.learn(secret)
        return _guarded(ready, run)

    def stop(self) -> None:
        """End every pause and close idle connectors; calls in flight run to their deadline."""
        self._stopping.set()
        self._connections.close()

    def _run(self, ready: Ready, key: str, seconds: float, sink: LogSink, act: Callable[[Connector, CallContext], T]) -> T:
        return self._run_noted(ready, _Terms(key, seconds, sink), act)

    def _run_noted(self, ready: Ready, terms: _Terms, act: Callable[[Connector, CallContext], T]) -> T:
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

        return _guarded(ready, run, is_discreet=terms.is_discreet)


def _rehearse(ready: Ready, shot: Shot) -> list[HttpRequest]:
    """The call up to its first request, on a connector of its own, so that nothing open already can be used."""
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


def _blotted(ready: Ready, action: Action) -> Action:
    """The same action without secrets in it, in a form that can be stored."""
    parts: Any = [action.summary, action.input, action.output, action.sample, action.plan, action.withheld]
    text = db.dump_json(parts)
    if not text.isascii() or ready.redactor.text(text) != text:
        parts = ready.redactor.json(_storable(parts))
    return Action(action.name, parts[0], parts[1], parts[2], action.effect, parts[3], parts[4], parts[5])


def _storable(value: T) -> T:
    """The same as plain JSON, without halves of surrogate pairs, which foreign systems send and no UTF-8 text can hold."""
    cleaned: T = json.loads(db.dump_json(value).encode("utf-8", "replace"))
    return cleaned


def _hold_to(ready: Ready, promised: Schema, value: Any, what: str) -> None:
    """SystemFailure at the first place where an answer breaks its connector's own schema; it names no value."""
    try:
        problem = promised.first_problem(value, namespace=ready.tenant_id)
    except Overloaded as refusal:
        message = f"{ready.slug} answered, but its answer could not be checked: {refusal.message}"
        raise SystemFailure(message, outcome="unknown") from refusal
    if problem:
        where = problem.pointer or "/"
        raise SystemFailure(
            f"{ready.slug} answered something its connector does not promise: {what}, at {where}: {problem.message} "
            f"Look at what the foreign system sends; if it is right, {ready.connector_label} needs a mended release.",
            outcome="unknown",
            details={"pointer": where, "rule": problem.code},
        )


def _terms_of(shot: Shot) -> _Terms:
    return _Terms(shot.key, shot.seconds, shot.sink, shot.traffic, shot.documents, shot.is_discreet, shot.admit)


def _guarded(ready: Ready, act: Callable[[], T], *, is_discreet: bool = False) -> T:
    """The contract's errors without secrets in them; a plugin's bug is logged in full and told as a SystemFailure.

    Discreetly it is logged without its own words, which may quote what the foreign system said.
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
            logs.remember_secret(secret)  # only now: tokens change too often for each of them to be remembered
        if is_discreet:
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("the connector %s failed on its own (%s)\n%s", ready.connector_label, type(error).__name__, where)
        else:
            _log.exception("the connector %s failed on its own", ready.connector_label)
        raise SystemFailure(
            f"The connector {ready.connector_label} failed on its own ({type(error).__name__}); see the log.",
            outcome="unknown",
        ) from error
