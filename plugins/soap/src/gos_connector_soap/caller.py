"""Calls operations of a service: loads and caches its WSDL, and builds each message before anything is sent."""

import copy
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import zeep
from lxml.etree import LxmlError
from zeep import exceptions
from zeep.helpers import serialize_object
from zeep.wsdl.bindings.soap import SoapBinding
from zeep.wsse.username import UsernameToken

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Json,
    Outcome,
    Rejected,
    SystemFailure,
)
from gos_connector_soap.transport import ResponseElementCheck, Transport, current_call, origin
from gos_connector_soap.value import members_of, to_json

# Changes to a WSDL take effect after ten minutes.
_CACHE_SECONDS = 600.0
_EXCERPT = 500
# Faults of WS-Security (SOAP Message Security 1.1, § 12) that reject the credentials.
_AUTH_FAULTS = ("FailedAuthentication", "InvalidSecurityToken", "FailedCheck", "InvalidSecurity")
# What zeep raises for invalid values and WSDLs, beside its own errors; its warnings may be turned into errors.
_ZEEP_ERRORS = (
    *(exceptions.Error, LxmlError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, NotImplementedError),
    *(RecursionError, Warning),
)


@dataclass(frozen=True)
class _Service:
    """A loaded WSDL: `proxy` builds and sends messages, `operations` are those of the binding."""

    client: Any
    proxy: Any
    operations: Mapping[str, Any]
    address: str


class Caller:
    """Calls the service in an integration's settings."""

    def __init__(self, settings: Json) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._cached: tuple[float, _Service] | None = None

    def check(self, ctx: Context) -> str:
        """Load the WSDL, connect to the service and return a summary."""
        with _call_context(ctx):
            service = self._load_service()
        target = origin(service.address)
        ctx.dial(str(target[1]), target[2] or 0).close()
        count = len(service.operations)
        return f"The WSDL has {count} operations; {service.address} accepts connections. Call an operation to test the credentials."

    def perform(self, action: str, params: Json, ctx: Context) -> dict[str, Any]:
        """Perform the action `call` or `describe`."""
        with _call_context(ctx):
            return self._call(params) if action == "call" else self._describe(params)

    # -- the actions

    def _call(self, params: Json) -> dict[str, Any]:
        service, name = self._get_service(), params["operation"]
        self._get_operation(service, name)
        values = params.get("input", {})
        if any(each.startswith("_soap") for each in values):
            raise ConfigError("The input contains a SOAP header; headers are not supported.")
        try:
            service.client.create_message(service.proxy, name, **copy.deepcopy(dict(values)))
        except _ZEEP_ERRORS as error:
            raise ConfigError(
                f"The input is not valid for {name}: {str(error)[:_EXCERPT]}. Use describe to see its input."
            ) from error
        try:
            answer = service.proxy[name](**copy.deepcopy(dict(values)))
            return {"output": to_json(serialize_object(answer, dict))}
        except exceptions.Fault as fault:
            raise _fault_error(fault) from fault
        except ConnectorError as error:
            if name in self.settings.get("reads", ()):
                error.outcome = "not_done"
            raise
        except _ZEEP_ERRORS as error:
            outcome: Outcome = "not_done" if name in self.settings.get("reads", ()) else "unknown"
            message = f"The service's answer does not match its WSDL: {str(error)[:_EXCERPT]}"
            raise SystemFailure(message, outcome=outcome) from error

    def _describe(self, params: Json) -> dict[str, Any]:
        service = self._get_service()
        if "operation" not in params:
            return {"operations": [{"name": name} for name in sorted(service.operations)]}
        operation = self._get_operation(service, params["operation"])
        takes, gives = (_describe_body(part) for part in (operation.input, operation.output))
        return {"operations": [{"name": params["operation"], "takes": takes, "gives": gives}]}

    # -- the description

    def _get_operation(self, service: _Service, name: str) -> Any:
        operation = service.operations.get(name)
        if operation is None:
            raise ConfigError(f"The service has no operation {name!r}; use describe to list its operations.")
        return operation

    def _get_service(self) -> _Service:
        with self._lock:
            cached = self._cached
        if cached is not None and time.monotonic() < cached[0]:
            return cached[1]
        return self._load_service()

    def _load_service(self) -> _Service:
        security = self.settings.get("security")
        token = (
            UsernameToken(security["username"], security["password"], use_digest=security.get("digest", False))
            if security
            else None
        )
        settings = zeep.Settings(strict=True, forbid_dtd=True, forbid_entities=True, forbid_external=False, xml_huge_tree=False)
        try:
            transport = Transport(self.settings)
            url, plugins = self.settings["wsdl_url"], [ResponseElementCheck()]
            client = zeep.Client(url, wsse=token, transport=transport, settings=settings, plugins=plugins)
            port = self._select_port(client)
        except ConnectorError as error:
            error.outcome = "not_done"  # Loading a WSDL changes nothing.
            raise
        except _ZEEP_ERRORS as error:
            raise SystemFailure(f"The WSDL is invalid: {str(error)[:_EXCERPT]}") from error
        address = self._service_address(port)
        service = _Service(client, client.create_service(port.binding.name, address), port.binding.all(), address)
        with self._lock:
            self._cached = (time.monotonic() + _CACHE_SECONDS, service)
        return service

    def _select_port(self, client: Any) -> Any:
        ports = {name: port for service in client.wsdl.services.values() for name, port in service.ports.items()}
        soap_ports = {name: port for name, port in ports.items() if isinstance(port.binding, SoapBinding)}
        port_name = self.settings.get("port")
        if port_name is None and soap_ports:
            return next(iter(soap_ports.values()))
        if port_name not in soap_ports:
            raise ConfigError(
                f"The WSDL has no port {port_name or 'that uses SOAP'}; it has {', '.join(soap_ports) or 'none'}."
            )
        return soap_ports[port_name]

    def _service_address(self, port: Any) -> str:
        """Return the address of calls; ConfigError if it is on another server than the WSDL and not set in `address`."""
        configured = self.settings.get("address")
        if configured is not None:
            return str(configured)
        address = str(port.binding_options.get("address") or "")
        if origin(address) != origin(self.settings["wsdl_url"]):
            raise ConfigError(
                f"The WSDL sends calls to another server, {address[:200]!r}; if that is intended, set `address` to it."
            )
        return address


@contextmanager
def _call_context(ctx: Context) -> Iterator[None]:
    token = current_call.set(ctx)
    try:
        yield
    finally:
        current_call.reset(token)


def _describe_body(message: Any) -> list[dict[str, Any]]:
    body = getattr(message, "body", None)
    return members_of(getattr(body, "type", None)) if body is not None else []


def _fault_error(fault: exceptions.Fault) -> ConnectorError:
    codes = [str(code) for code in (fault.code, *(fault.subcodes or ())) if code is not None]
    message = str(fault.message or "")[:_EXCERPT]
    details: dict[str, Any] = {"code": codes[0][:200] if codes else "", "message": message}
    if fault.detail is not None:
        details["detail"] = str(to_json(fault.detail))[:2_000]
    if any(marker in code for code in codes for marker in _AUTH_FAULTS):
        return AuthError(f"The service does not accept the user name and password: {message}", details=details)
    return Rejected(f"The service refused: {message or 'no reason given'}", details=details)
