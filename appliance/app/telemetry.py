"""Exports spans and metrics over OTLP; without a configured collector the exporter is not even imported."""

from typing import TYPE_CHECKING

from quart import Quart, request

from appliance import __version__
from appliance.core.config import Config
from appliance.monitor import spans

if TYPE_CHECKING:
    from appliance.monitor.otlp import Exporter

FLUSH_SECONDS = 5.0


class Telemetry:
    """The OTLP export between `start` and `stop`; both do nothing without a configured collector."""

    def __init__(self, config: Config, instance: str) -> None:
        self._settings, self._instance = config.otlp, instance
        self._exporter: Exporter | None = None

    def start(self) -> None:
        if not self._settings.endpoint:
            return
        from appliance.monitor.otlp import Exporter

        settings = self._settings
        resource = {"service.name": settings.service_name, "service.version": __version__, "service.instance.id": self._instance}
        self._exporter = Exporter(settings, resource)
        self._exporter.start()
        spans.export_to(self._exporter.add if settings.sample_percent else None, settings.sample_percent)

    def stop(self) -> None:
        """Stop collecting; pending data is sent within five seconds or lost."""
        if self._exporter is not None:
            spans.export_to(None)
            self._exporter.stop(FLUSH_SECONDS)
            self._exporter = None

    def name_routes(self, quart: Quart) -> None:
        """Record the route template of each request, which names its span."""
        if self._settings.endpoint:
            quart.before_request(_name_route)


async def _name_route() -> None:
    if request.url_rule is not None:
        request.scope["gos.route"] = request.url_rule.rule  # type: ignore[typeddict-unknown-key]
