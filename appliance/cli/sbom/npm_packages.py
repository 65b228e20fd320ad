"""The npm packages of the WebAssembly runtimes and of the console, as their lock has them for this machine."""

import base64
import platform
import sys
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from appliance.sandbox import locked_packages

from .licences import licence_members

FOLDER = "node_modules/"
# npm's names for processors.
PROCESSORS = {"x86_64": "x64", "aarch64": "arm64", "i686": "ia32", "armv7l": "arm"}
# Packages whose `package.json` names no licence, and what their file LICENSE contains.
UNSTATED = {"@php-wasm/util": "GPL-2.0-or-later"}


class NpmPackages:
    """The packages of the lock by their places (`node_modules/typescript`), without those for other machines."""

    def __init__(self) -> None:
        lock = locked_packages()
        self.root: Mapping[str, Any] = lock.pop("")
        self.entries: dict[str, Mapping[str, Any]] = {place: entry for place, entry in lock.items() if _fits(entry)}

    def components(self) -> Iterator[dict[str, Any]]:
        for place, entry in self.entries.items():
            name = _name_of(place)
            group, _, plain = name.rpartition("/")
            algorithm, _, digest = entry["integrity"].partition("-")
            purl = self._ref(place)
            licence = entry.get("license") or UNSTATED.get(name)
            yield {
                "type": "library",
                "bom-ref": purl,
                **({"group": group} if group else {}),
                "name": plain,
                "version": entry["version"],
                "hashes": [{"alg": algorithm.upper().replace("SHA", "SHA-"), "content": base64.b64decode(digest).hex()}],
                "licenses": licence_members([licence] if licence else []),
                "purl": purl,
            }

    def direct(self) -> set[str]:
        """The `bom-ref` of what the appliance itself uses."""
        return self._required("", self.root)

    def dependencies(self) -> Mapping[str, set[str]]:
        """The `bom-ref` of each package with those of what it requires here."""
        required: dict[str, set[str]] = {}
        for place, entry in self.entries.items():
            required.setdefault(self._ref(place), set()).update(self._required(place, entry))
        return required

    def _required(self, place: str, entry: Mapping[str, Any]) -> set[str]:
        names = {**entry.get("dependencies", {}), **entry.get("optionalDependencies", {})}
        places = (self._find(name, place) for name in names)
        return {self._ref(each) for each in places if each}

    def _find(self, name: str, place: str) -> str:
        """Where Node.js finds a package from a place: in its own folder or in the nearest above; empty if it is not there."""
        while f"{place}/{FOLDER}{name}".lstrip("/") not in self.entries:
            if not place:
                return ""
            place = place.rpartition(FOLDER)[0].rstrip("/")
        return f"{place}/{FOLDER}{name}".lstrip("/")

    def _ref(self, place: str) -> str:
        return f"pkg:npm/{quote(_name_of(place))}@{quote(self.entries[place]['version'], safe='')}"


def _fits(entry: Mapping[str, Any]) -> bool:
    processor = PROCESSORS.get(platform.machine(), platform.machine())
    return processor in entry.get("cpu", [processor]) and sys.platform in entry.get("os", [sys.platform])


def _name_of(place: str) -> str:
    return place.rpartition(FOLDER)[2]
