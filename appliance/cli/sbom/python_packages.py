"""The Python distributions that are installed: the appliance, its connectors, the lock, and what these require."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .licences import licences_of

APPLIANCE = "gos-appliance"
# The extras that the lock contains; those for tests stay out.
EXTRAS = frozenset({"ocr", "postgresql"})
WHEEL = Path(__file__).resolve().parents[2] / "locks" / "requirements.lock"
CHECKOUT = Path(__file__).resolve().parents[3] / "packaging" / "requirements.lock"
LOCK = WHEEL if WHEEL.is_file() else CHECKOUT


@dataclass(frozen=True)
class Pin:
    """A distribution of the lock: its version, and the SHA-256 of each file that may be installed for it."""

    version: str
    hashes: tuple[str, ...]


def read_pins(text: str) -> dict[str, Pin]:
    """The pins of a lock that are for this machine and its Python, by their canonical names."""
    pins: dict[str, Pin] = {}
    for line, hashes in re.findall(r"^([A-Za-z0-9].*?)\s*\\\n((?: .*\n?)+)", text, re.MULTILINE):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate():
            version = str(requirement.specifier).removeprefix("==")
            pins[canonicalize_name(requirement.name)] = Pin(version, tuple(sorted(re.findall(r"sha256:([0-9a-f]{64})", hashes))))
    return pins


class PythonPackages:
    """What is installed, by canonical names, and which of it requires which."""

    def __init__(self) -> None:
        self.pins = read_pins(LOCK.read_text("utf-8"))
        self.connectors = frozenset(
            canonicalize_name(each.dist.name) for each in entry_points(group="appliance.connectors") if each.dist is not None
        )
        self._extras: dict[str, frozenset[str]] = {}
        self.installed: dict[str, Distribution] = {}
        for name in (*self.pins, *self.connectors):
            self._add(name, frozenset())
        self._add(APPLIANCE, EXTRAS)

    def refs(self) -> dict[str, str]:
        """The `bom-ref` of each installed distribution."""
        return {name: self._ref(name) for name in self.installed}

    def components(self) -> Iterator[dict[str, Any]]:
        """All distributions except the appliance, which the document is about."""
        for name in self.installed:
            if name != APPLIANCE:
                yield self.component(name)

    def component(self, name: str) -> dict[str, Any]:
        package, ref = self.installed[name], self._ref(name)
        component = {
            "type": "application" if name == APPLIANCE else "library",
            "bom-ref": ref,
            "name": name,
            "version": package.version,
            "licenses": licences_of(package),
        }
        if ref.startswith("pkg:"):
            component["purl"] = ref
        pin = self.pins.get(name)
        if pin is not None and pin.version == package.version:
            component["externalReferences"] = [{
                "type": "distribution",
                "url": ref,
                "comment": "the files that packaging/requirements.lock allows; one of them is installed",
                "hashes": [{"alg": "SHA-256", "content": each} for each in pin.hashes],
            }]  # fmt: skip
        return component

    def dependencies(self) -> Mapping[str, set[str]]:
        """The `bom-ref` of each distribution with those of what it requires here."""
        refs = self.refs()
        required = {refs[name]: {refs[each.name] for each in self._requirements(name)} for name in self.installed}
        # The appliance also comes with its connectors, and with what the lock has for building and for no other reason.
        used = set().union(*required.values())
        required[refs[APPLIANCE]] |= {ref for ref in refs.values() if ref not in used} - {refs[APPLIANCE]}
        return required

    def _add(self, name: str, extras: frozenset[str]) -> None:
        """Add a distribution, if it is installed, and what it requires with these extras, if that was not added before."""
        known = self._extras.get(name)
        if known is not None and extras <= known:
            return
        try:
            self.installed[name] = distribution(name)
        except PackageNotFoundError:
            return
        self._extras[name] = extras | (known or frozenset())
        for each in self._requirements(name, installed_only=False):
            self._add(each.name, frozenset(each.extras))

    def _requirements(self, name: str, *, installed_only: bool = True) -> list[Requirement]:
        """The requirements of a distribution that apply on this machine with its extras, with canonical names."""
        applying = []
        for text in self.installed[name].requires or []:
            requirement = Requirement(text)
            requirement.name = canonicalize_name(requirement.name)
            marker, extras = requirement.marker, ("", *self._extras[name])
            applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
            if applies and (requirement.name in self.installed or not installed_only):
                applying.append(requirement)
        return applying

    def _ref(self, name: str) -> str:
        """A package URL; the appliance and its connectors come from no registry and have a name and a version only."""
        version = self.installed[name].version
        if name == APPLIANCE or name in self.connectors:
            return f"{name}@{version}"
        return f"pkg:pypi/{name}@{quote(version, safe='')}"
