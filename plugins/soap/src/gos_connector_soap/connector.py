"""The connector class; it imports zeep, which is slow to load, with the first call."""

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Effect, Json
from gos_connector_soap.declaration import ACTIONS, SETTINGS

if TYPE_CHECKING:
    from gos_connector_soap.caller import Caller


class SoapConnector(Connector):
    """Calls the operations of one service."""

    contract_version = 1
    name = "soap"
    title = "SOAP"
    version = "0.1.0"
    tested_against = "a loopback test service that follows its WSDL (SOAP 1.1 and 1.2)"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._lock = threading.Lock()
        self._loaded_caller: Caller | None = None

    def effect_of(self, action: Action, input: Json) -> Effect:  # noqa: A002 - the contract's word
        is_read = input.get("operation") in self.settings.get("reads", ())
        return "read" if action.name == "call" and is_read else action.effect

    def check(self, ctx: Context) -> str:
        return self._caller().check(ctx)

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if action not in ("call", "describe"):
            raise ConfigError(f"{self.title} has no action {action!r}; it has call, describe.")
        return self._caller().perform(action, input, ctx)

    def _caller(self) -> "Caller":
        from gos_connector_soap.caller import Caller

        with self._lock:
            self._loaded_caller = self._loaded_caller or Caller(self.settings)
        return self._loaded_caller
