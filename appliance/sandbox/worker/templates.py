"""Stores the templates that suspended steps are deltas of, and provides lanes for those of former versions."""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from appliance.core import clock
from appliance.sandbox import runtimes
from appliance.sandbox.pool.lane import Lane
from appliance.sandbox.pool.occasional import OccasionalLane
from appliance.sandbox.runtimes import Boot
from appliance.sandbox.runtimes.wasmfile import MalformedWasm, read_custom
from appliance.sandbox.worker.snapshot import Unusable

_NAME = re.compile(r"[0-9a-f]{64}\.wasm\Z")
_NEW, _ABANDONED_MS = ".new", 3_600_000


@dataclass(frozen=True)
class Template:
    """A stored template with verified content; `boot` has the addresses in its memory."""

    id: str
    path: Path
    boot: Boot


class Templates:
    """The templates in `folder` by id (their digest); without a folder there is only the current one."""

    def __init__(self, folder: Path | None, current: Path) -> None:
        self._folder, self._current = folder, current
        self.current = runtimes.digest(current.read_bytes())

    def store_current(self) -> None:
        """Store the current template, so that steps suspended with it can resume after an upgrade."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        target = self._path(self._folder, self.current)
        if target.is_file() and runtimes.digest(target.read_bytes()) == self.current:
            return
        # Server and worker may do this at the same time: each writes its own file, and the last one wins.
        new = target.with_suffix(f".{secrets.token_hex(8)}{_NEW}")
        try:
            with new.open("xb") as handle:
                handle.write(self._current.read_bytes())
                os.fsync(handle.fileno())
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)

    def find(self, template: str) -> Template:
        """One stored template; raises Unusable if it is missing, altered, or uses a protocol this version does not know."""
        try:
            if self._folder is None or not _NAME.match(f"{template}.wasm"):
                raise FileNotFoundError(template)
            path = self._path(self._folder, template)
            binary = path.read_bytes()
            if runtimes.digest(binary) != template:
                raise MalformedWasm("the template does not match its digest")
            facts = json.loads(read_custom(binary, runtimes.FACTS))
            if facts["protocol"] != runtimes.PROTOCOL:
                raise MalformedWasm("the template uses another protocol")
            return Template(template, path, Boot(**facts["boot"]))
        except (OSError, MalformedWasm, ValueError, KeyError, TypeError) as fault:
            text = (
                "This step was suspended under another version of the sandbox, whose template is missing or altered; "
                "restore the folder of templates from a backup, or retry the step from its start."
            )
            raise Unusable("snapshot_template_missing", text) from fault

    def forget(self, keep: set[str]) -> None:
        """Delete all templates except the current one and those in `keep`, which suspended steps still need."""
        if self._folder is None or not self._folder.is_dir():
            return
        for each in self._folder.iterdir():
            if _NAME.match(each.name) and each.stem != self.current and each.stem not in keep:
                each.unlink()
            if each.suffix == _NEW and clock.now_ms() - each.stat().st_mtime * 1000 > _ABANDONED_MS:
                each.unlink(missing_ok=True)  # left by a process that was killed while writing

    def _path(self, folder: Path, template: str) -> Path:
        return folder / f"{template}.wasm"


class FormerLanes:
    """The lanes of former templates; each starts when a step resumes and ends after `idle_seconds` without use."""

    def __init__(self, templates: Templates, make: Callable[[Template], Lane], idle_seconds: float) -> None:
        self._templates, self._make, self._idle_seconds = templates, make, idle_seconds
        self._lock = threading.Lock()
        self._lanes: dict[str, OccasionalLane] = {}

    def lane(self, template: str) -> OccasionalLane:
        """The lane of a former template; raises Unusable, here or when a slot is requested, if the template is missing."""
        with self._lock:
            lane = self._lanes.get(template)
            if lane is None:
                self._templates.find(template)
                lane = OccasionalLane(lambda: self._make(self._templates.find(template)), self._idle_seconds)
                self._lanes[template] = lane
            return lane

    def process_ids(self) -> list[int]:
        with self._lock:
            return [number for each in self._lanes.values() for number in each.process_ids()]

    def stop(self) -> None:
        with self._lock:
            lanes, self._lanes = list(self._lanes.values()), {}
        for each in lanes:
            each.stop()
