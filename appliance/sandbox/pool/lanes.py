"""The kinds of sandbox processes: one lane for each kind of work, and the settings of its processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from appliance.core.confinement import confinement
from appliance.sandbox import runtimes
from appliance.sandbox.evaluation.schema_checks import PLACES_EACH
from appliance.sandbox.observer import NullObserver, Observer
from appliance.sandbox.pool.lane import Bounds, Lane
from appliance.sandbox.pool.occasional import OccasionalLane
from appliance.sandbox.pool.process import FIRST_USER
from appliance.sandbox.program import Program
from appliance.sandbox.runtimes.background import RuntimeFolder
from appliance.sandbox.worker.templates import FormerLanes, Template, Templates

TYPES_IDLE_SECONDS = 180.0
# More slots make PHP no faster, but several steps can wait for answers at once.
PHP_SLOTS, PHP_IDLE_SECONDS = 4, 600.0

DECISION_ADDRESS_SPACE = 1 << 30
# Values that take long to check are rare; the memory that a process keeps beyond its libraries is freed with it.
SCHEMAS_IDLE_SECONDS, SCHEMAS_IDLE_BYTES = 120.0, 64 << 20

AnyLane = Lane | OccasionalLane


@dataclass(frozen=True)
class Settings:
    """The settings of the sandbox.

    - `runtimes`: the folder of the prepared runtimes (None: the default of a checkout)
    - `queue_seconds`: how long a request waits for a slot; `queue_places`: how many may wait at once
    - `idle_mb`: a process that uses more memory between steps is replaced
    - `first_user`: the first of the 400 user ids that processes take when started as root (0: they stay root)
    - `templates`: the folder for templates of former versions (None: they are not kept), whose processes end after
      `former_idle_seconds` without use
    - `starts_on_demand`: processes for code start when first needed and end after `code_idle_seconds` without use
    """

    processes: int = 2
    slots: int = 8
    runtimes: Path | None = None
    queue_seconds: float = 60.0
    queue_places: int = 256
    idle_mb: int = 512
    first_user: int = FIRST_USER
    templates: Path | None = None
    former_idle_seconds: float = 60.0
    starts_on_demand: bool = False
    code_idle_seconds: float = 180.0


class Lanes:
    """All lanes; only the one for code may be started before it is needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.runtimes = RuntimeFolder(settings.runtimes or runtimes.default_folder())
        self.templates = Templates(settings.templates, self._verified(runtimes.TEMPLATE))
        self._observer: Observer = NullObserver()
        self._bounds = Bounds(settings.queue_places, settings.idle_mb << 20)
        on_demand = OccasionalLane(lambda: self._observed(self._code_lane()), settings.code_idle_seconds)
        self.code: AnyLane = on_demand if settings.starts_on_demand else self._code_lane()
        self.former = FormerLanes(self.templates, self._former_lane, settings.former_idle_seconds)
        # A decision blocks its whole process while it runs, so decisions have their own, started when first needed.
        self.decisions = self._lane("decisions", 1, 1, {"address_space": DECISION_ADDRESS_SPACE})
        # The type checker needs much memory, and only TypeScript needs it.
        self.types = OccasionalLane(lambda: self._observed(self._lane("types", 1, 1, self._types_settings())), TYPES_IDLE_SECONDS)
        self.php = OccasionalLane(self._php_lane, PHP_IDLE_SECONDS)
        self.schemas = OccasionalLane(self._schemas_lane, SCHEMAS_IDLE_SECONDS)

    def runtime_of(self, program: Program) -> str | None:
        """The runtime that a program needs and that may still be prepared."""
        return "php" if program.language == "php" else None

    def lane_for(self, program: Program) -> AnyLane:
        """The lane in which a program is compiled and run."""
        return self.php if program.language == "php" else self.code

    def observe(self, observer: Observer) -> None:
        self._observer = observer
        for lane in (self.code, self.decisions):
            if isinstance(lane, Lane):
                lane.observer = observer

    def stop(self) -> None:
        for lane in (self.code, self.former, self.decisions, self.types, self.php, self.schemas):
            lane.stop()

    def _lane(self, role: str, count: int, slots: int, facts: dict[str, Any], name: str = "") -> Lane:
        settings = {"role": role, "address_space": confinement.ADDRESS_SPACE, "first_user": self._settings.first_user, **facts}
        return Lane(name or role, settings, count, slots, self._bounds)

    def _code_lane(self) -> Lane:
        return self._lane("code", self._settings.processes, self._settings.slots, self._code_settings())

    def _former_lane(self, template: Template) -> Lane:
        slots = self._settings.slots
        facts = {
            "slots": slots, "wasm": str(template.path), "boot": asdict(template.boot), "template": template.id,
            "intl": str(self._verified(runtimes.INTL)),
        }  # fmt: skip
        return self._observed(self._lane("former", 1, slots, facts, f"former-{template.id[:8]}"))

    def _php_lane(self) -> Lane:
        return self._observed(self._lane("php", self._settings.processes, PHP_SLOTS, self._php_settings()))

    def _schemas_lane(self) -> Lane:
        bounds = Bounds(self._settings.queue_places, SCHEMAS_IDLE_BYTES, places_each=PLACES_EACH)
        settings = {"role": "schemas", "address_space": confinement.ADDRESS_SPACE, "first_user": self._settings.first_user}
        return self._observed(Lane("schemas", settings, 1, 1, bounds))

    def _observed(self, lane: Lane) -> Lane:
        lane.observer = self._observer
        return lane

    def _code_settings(self) -> dict[str, Any]:
        return {
            "slots": self._settings.slots,
            "quickjs": str(self._verified(runtimes.QUICKJS)),
            "swc": str(self._verified(runtimes.SWC)),
            "intl": str(self._verified(runtimes.INTL)),
            "boot": asdict(self.runtimes.loaded.boot),
            "template": self.templates.current,
        }

    def _types_settings(self) -> dict[str, Any]:
        boot = self.runtimes.part("types").facts["boot"]
        return {"checker": str(self._verified(runtimes.TYPES)), "boot": boot}

    def _php_settings(self) -> dict[str, Any]:
        boot = self.runtimes.part("php").facts["boot"]
        return {"php": str(self._verified(runtimes.PHP)), "boot": boot}

    def _verified(self, name: str) -> Path:
        return self.runtimes.loaded.verified(name)
