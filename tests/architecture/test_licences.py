"""Every package of the lock has a licence that allows shipping it with the appliance."""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement

from appliance.cli.sbom.licences import SPDX_IDS, licence_from_file
from tests.architecture.source_tree import ROOT

# Permissive licences, and weak copyleft licences of packages that are used unchanged and can be replaced.
PERMISSIVE = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Zlib"),
    "LLVM-exception", "Unlicense",
}
WEAK_COPYLEFT = {"LGPL-2.1", "LGPL-3.0-only", "MPL-2.0"}
TABLE = ROOT / "docs" / "licences.md"


def locked_packages() -> dict[str, str]:
    """The packages of the lock that belong to this machine, and their versions."""
    lines = (ROOT / "packaging" / "requirements.lock").read_text().splitlines()
    requirements = [Requirement(line.rstrip("\\ ")) for line in lines if re.match(r"[A-Za-z0-9]", line)]
    return {each.name: str(each.specifier) for each in requirements if each.marker is None or each.marker.evaluate()}


def licence_of(package: Distribution) -> str:
    """The licence in the package's metadata as an SPDX expression; empty when it is not recognized."""
    get_all = package.metadata.get_all
    classifiers = [name.rpartition(" :: ")[2] for name in get_all("Classifier", []) if name.startswith("License ::")]
    stated = get_all("License-Expression", []) or [*get_all("License", []), *classifiers]
    return next(filter(None, map(allowed_licence, stated)), "") if stated else licence_from_file(package)


def allowed_licence(text: str) -> str:
    """The SPDX expression when all of its licences are allowed, otherwise empty."""
    licence = SPDX_IDS.get(text.strip(), text.strip())
    return licence if words_of(licence) <= PERMISSIVE | WEAK_COPYLEFT else ""


def words_of(expression: str) -> set[str]:
    return set(re.split(r"\s+(?:AND|OR|WITH)\s+", expression))


def documented_licences() -> dict[str, str]:
    """Package and licence of every row of the page."""
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| ([^|]+?) \|", TABLE.read_text(), re.MULTILINE)
    return dict(rows)


@pytest.mark.parametrize("name", sorted(locked_packages()))
def test_every_package_of_the_lock_has_an_allowed_licence(name: str) -> None:
    try:
        package = distribution(name)
    except PackageNotFoundError:
        pytest.fail(f"{name} is in the lock and not installed: install packaging/requirements-test.lock")
    assert licence_of(package), f"look up the licence of {name}, and add what its metadata says to SPDX_IDS if it may be shipped"


def test_the_page_lists_every_weak_copyleft_package() -> None:
    documented = documented_licences()
    weak = {name for name in locked_packages() if words_of(licence_of(distribution(name))) & WEAK_COPYLEFT}
    assert weak
    assert weak <= set(documented)
    assert {name: licence_of(distribution(name)) for name in documented} == documented


def test_a_licence_not_allowed_is_found() -> None:
    for text in ("GPL-3.0-only", "AGPL-3.0-or-later", "MIT AND GPL-2.0-only", "Proprietary", ""):
        assert allowed_licence(text) == ""
    assert allowed_licence("Apache-2.0 WITH LLVM-exception") == "Apache-2.0 WITH LLVM-exception"
