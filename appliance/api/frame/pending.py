"""Requests whose handlers make the call themselves, in the thread that also does the work: no request changes threads twice."""

from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.governance import Permit
from appliance.web import Request, Services

from . import agent_policies
from .routing import Call


@dataclass
class PendingCall:
    """A request that may not be authenticated yet.  `headers` are its RateLimit headers, once it is."""

    services: Services
    request: Request
    _prepare: Callable[[], tuple[Call, dict[str, str], Permit | None]]
    headers: dict[str, str] = field(default_factory=dict)
    _call: Call | None = None
    _permit: Permit | None = None

    @property
    def is_made(self) -> bool:
        """Whether there is a call."""
        return self._call is not None

    @property
    def call(self) -> Call:
        """The call; RuntimeError before `prepare`."""
        if self._call is None:
            raise RuntimeError("the call has not been prepared")
        return self._call

    @property
    def has_permit(self) -> bool:
        """Whether an agent's permit is still to be used."""
        return self._permit is not None

    def prepare(self) -> Call:
        """In a thread: authenticate, parse and apply policies."""
        self._call, headers, self._permit = self._prepare()
        self.headers.update(headers)
        return self._call

    def begin(self) -> Call:
        """In a thread: the call, prepared if it was not, with the permit of an agent used."""
        call = self._call or self.prepare()
        permit, self._permit = self._permit, None
        if permit is not None:
            agent_policies.begin(permit, call)
        return call
