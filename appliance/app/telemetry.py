"""Exports spans and metrics over OTLP; without a configured collector the exporter is not even imported."""

from typing import TYPE_CHECKING

from appliance import __version__
from appliance.core.config import Config
from appliance.core.config.sections import Otlp
from appliance.monitor import spans

if TYPE_CHECKING:
    from appliance.monitor.otlp import Exporter

FLUSH_SECONDS = 5.0


def resource_of(settings: Otlp, instance: str) -> dict[str, str]:
    """What identifies this process of the appliance at a collector."""
    return {"service.name": settings.service_name, "service.version": __version__, "service.instance.id": instance}


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
        self._exporter = Exporter(settings, resource_of(settings, self._instance))
        self._exporter.start()
        spans.export_to(self._exporter.add if settings.sample_percent else None, settings.sample_percent)

    def stop(self) -> None:
        """Stop collecting; pending data is sent within five seconds or lost."""
        if self._exporter is not None:
            spans.export_to(None)
            self._exporter.stop(FLUSH_SECONDS)
            self._exporter = None
