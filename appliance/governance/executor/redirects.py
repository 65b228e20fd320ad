"""Checks every host that a call is redirected or connects to, unless it was already part of the decision."""

from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from appliance.connectors.contract import AddressNotAllowed
from appliance.connectors.network import normal_host, without_port
from appliance.core.database import db
from appliance.core.sentences import Sentence
from appliance.governance.governor import Governor, Permit
from appliance.governance.policies.compiled import hosts_of
from appliance.governance.policies.evaluation import STRICTNESS

_PORTS = {"http": "80", "https": "443"}


@dataclass
class HostChecks:
    """The hosts of one call; `known` are those the decision covers."""

    governor: Governor
    permit: Permit
    allowed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.allowed.update(hosts_of(self.permit.action))

    def check(self, place: str) -> None:
        """Before a request or a connection: AddressNotAllowed if the rules are stricter for this host than for the call."""
        host = _host_of(place)
        if not self.allowed.isdisjoint((host, without_port(host))):
            return
        permit = self.permit
        action = permit.action
        sent = replace(action.sent, host=host) if action.sent is not None else None
        decision = self.governor.evaluate(permit.scope, permit.subject, replace(action, host=host, sent=sent))
        stricter = STRICTNESS[decision.verdict] > STRICTNESS[permit.decision.verdict]
        asks_others = decision.verdict == "require_approval" and not set(decision.rules) <= set(permit.decision.rules)
        if stricter or asks_others:
            why = "; ".join(decision.reasons) or "no rule allows it"
            message = Sentence(
                "%(integration)s leads on to %(host)s, which the policies do not allow for this call: %(why)s; call "
                "that host directly, or ask an administrator of the policies to allow it",
                integration=action.integration, host=host, why=why,
            )
            db.write(lambda: permit.audit_refusal(message))
            raise AddressNotAllowed(message)
        self.allowed.add(host)


def _host_of(place: str) -> str:
    """The host and port of a URL, or of a `host:port` that is dialled."""
    if "://" not in place:
        return normal_host(place)
    parts = urlsplit(place)
    netloc = parts.netloc.rpartition("@")[2]
    has_port = netloc.rpartition(":")[2].isdigit() and not netloc.endswith("]")
    return normal_host(netloc if has_port else f"{netloc}:{_PORTS.get(parts.scheme, '0')}")
