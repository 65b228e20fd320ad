"""`gos sbom` lists what is installed with its licences, in valid CycloneDX that is the same each time."""

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from appliance import cli
from appliance.cli.sbom import npm_packages, python_packages
from appliance.cli.sbom.document import make_document
from appliance.cli.sbom.licences import SPDX_IDS
from tests.architecture.test_licences import PERMISSIVE, WEAK_COPYLEFT, locked_packages, words_of

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "packaging/requirements.lock").read_text("utf-8")
NPM_LOCK = json.loads((ROOT / "packaging/runtimes/package-lock.json").read_text("utf-8"))["packages"]
OURS = {"gos-appliance", *(f"gos-connector-{path.parent.name}" for path in ROOT.glob("plugins/*/pyproject.toml"))}
NAMED_IN_DOCS = "GPL-2.0-or-later"
"""The licence of PHP's build, which is not part of the project (docs/licences.md)."""


def sbom() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(make_document()))
    return document


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """What is installed here, read once."""
    return sbom()


def python_components(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in document["components"] if each.get("purl", "").startswith("pkg:pypi/")}


def check_pins(document: dict[str, Any]) -> None:
    """Every pin of the lock for this machine is in the document, with exactly the hashes that the lock has for it."""
    components = python_components(document)
    for name, specifier in locked_packages().items():
        assert name in components, f"{name} is in the lock and not in the document"
        component = components[name]
        assert component["purl"] == f"pkg:pypi/{name}@{component['version']}"
        assert f"=={component['version']}" == specifier
        # Some names have two pins, for older and for newer Pythons: hashes are those below the line of this version.
        (entry,) = re.findall(rf"^{re.escape(name + specifier)}(?![\w.]).*\n(?: .*\n?)+", LOCK, re.MULTILINE)
        hashes = [each for reference in component.get("externalReferences", []) for each in reference["hashes"]]
        assert {f"{each['alg']}:{each['content']}" for each in hashes} == {
            f"SHA-256:{content}" for content in re.findall(r"sha256:([0-9a-f]+)", entry)
        }, name


def licences(component: dict[str, Any]) -> set[str]:
    """The words of all of a component's licences, the names among them as SPDX identifiers."""
    texts = [each.get("expression") or each["license"].get("id") or each["license"]["name"] for each in component["licenses"]]
    return {word for text in texts for word in words_of(SPDX_IDS.get(text, text))}


def test_the_document_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795000000")
    dated = sbom()
    assert dated["metadata"]["timestamp"] == "2026-11-18T11:06:40Z"
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(dated)) is None
    dated["components"] = [{**dated["components"][0], "licenses": [{"license": {"id": "BSD"}}]}]
    assert validator.validate_str(json.dumps(dated)) is not None


def test_every_pin_of_the_lock_is_listed_with_its_hashes(document: dict[str, Any]) -> None:
    check_pins(document)
    component = document["metadata"]["component"]
    assert (component["type"], component["version"]) == ("application", version("gos-appliance"))
    rest = {each["name"] for each in document["components"] if "externalReferences" not in each and "hashes" not in each}
    assert {component["name"], *rest} == OURS


def test_a_missing_package_and_a_wrong_hash_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "requirements.lock"
    monkeypatch.setattr(python_packages, "LOCK", lock)
    digest = re.findall(r"peewee==.*\\\n.*sha256:(\w+)", LOCK)[0]
    for text in (LOCK.replace(digest, digest[::-1]), re.sub(r"^segno==(.*\n)((?: .*\n)+)", "", LOCK, flags=re.MULTILINE)):
        lock.write_text(text)
        assert text != LOCK
        changed = sbom()
        with pytest.raises(AssertionError, match=r"^(peewee|segno)\b"):
            check_pins(changed)


def test_what_is_not_installed_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with three distributions of the lock, one of them in another version, and a connector from elsewhere."""
    for name in ("gos-appliance", "packaging", "segno", "werkzeug"):
        folder = f"{name.replace('-', '_')}-{version(name)}.dist-info"
        shutil.copytree(str(distribution(name).locate_file(folder)), tmp_path / folder)
    (segno,) = tmp_path.glob("segno-*/METADATA")
    segno.write_text(re.sub(r"(?m)^Version: .*", "Version: 99.1+local", segno.read_text()))
    own = tmp_path / "stock_room-2.0.dist-info"
    own.mkdir()
    (own / "METADATA").write_text("Metadata-Version: 2.1\nName: Stock_Room\nVersion: 2.0\nRequires-Dist: werkzeug[watchdog]\n")
    (own / "entry_points.txt").write_text("[appliance.connectors]\nstock-room = stock_room:StockRoom\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(each for each in sys.path if "site-packages" not in each)])
    environment = python_packages.PythonPackages()
    werkzeug = f"pkg:pypi/werkzeug@{version('werkzeug')}"
    assert {each["bom-ref"]: "externalReferences" in each for each in environment.components()} == {
        "stock-room@2.0": False,
        f"pkg:pypi/packaging@{version('packaging')}": True,
        "pkg:pypi/segno@99.1%2Blocal": False,
        werkzeug: True,
    }
    dependencies = environment.dependencies()
    assert dependencies["stock-room@2.0"] == {werkzeug}
    assert "stock-room@2.0" in dependencies[f"gos-appliance@{version('gos-appliance')}"]


def test_every_npm_package_of_this_machine_is_listed_with_its_hash(document: dict[str, Any]) -> None:
    listed = {each["purl"]: each for each in document["components"] if each.get("purl", "").startswith("pkg:npm/")}
    expected = {
        f"pkg:npm/{place.rpartition('node_modules/')[2].replace('@', '%40')}@{entry['version']}"
        for place, entry in NPM_LOCK.items() if place and "os" not in entry
    }  # fmt: skip
    platforms = {purl for purl in listed if purl.startswith("pkg:npm/%40esbuild/")}
    assert len(platforms) == 1
    assert set(listed) == expected | platforms
    component = listed[f"pkg:npm/typescript@{NPM_LOCK['node_modules/typescript']['version']}"]
    (digest,) = component["hashes"]
    integrity = subprocess.run(
        ["base64", "-d"], input=NPM_LOCK["node_modules/typescript"]["integrity"].removeprefix("sha512-").encode(),
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert digest == {"alg": "SHA-512", "content": integrity.hex()}


def test_each_licence_is_allowed(document: dict[str, Any]) -> None:
    others = {}
    for component in (document["metadata"]["component"], *document["components"]):
        assert licences(component), f"no licence of {component['bom-ref']} is known"
        if more := licences(component) - PERMISSIVE - WEAK_COPYLEFT:
            others["/".join(filter(None, (component.get("group"), component["name"])))] = more
    page = (ROOT / "docs/licences.md").read_text("utf-8")
    documented = dict(re.findall(rf"^\| `(@php-wasm/[a-z0-9-]+)` \| ({NAMED_IN_DOCS}) \|", page, re.MULTILINE))
    assert others == {name: {licence} for name, licence in documented.items()}
    assert set(npm_packages.UNSTATED) <= set(documented)


def test_every_component_is_reached_from_the_appliance(document: dict[str, Any]) -> None:
    dependencies = {each["ref"]: each["dependsOn"] for each in document["dependencies"]}
    reached: set[str] = set()
    waiting = [document["metadata"]["component"]["bom-ref"]]
    while waiting:
        ref = waiting.pop()
        reached.add(ref)
        waiting += [each for each in dependencies[ref] if each not in reached]
    assert reached == set(dependencies)
    assert reached - {document["metadata"]["component"]["bom-ref"]} == {each["bom-ref"] for each in document["components"]}
    pins = {name: f"pkg:pypi/{name}{pin.replace('==', '@')}" for name, pin in locked_packages().items()}
    assert pins["h11"] in dependencies[pins["httpcore"]]
    assert pins["psycopg-binary"] in dependencies[pins["psycopg"]]  # by the extra that the appliance asks for
    older, newer = (f"pkg:npm/%40formatjs/intl-localematcher@{each}" for each in ("0.9.0", "0.10.1"))
    (relative,) = (ref for ref in dependencies if "intl-relativetimeformat@" in ref)
    assert newer in dependencies[relative]
    assert older not in dependencies[relative]


def test_the_document_is_the_same_each_time(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    command = [sys.executable, "-m", "appliance", "sbom"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert printed == json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    assert "timestamp" not in document["metadata"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795000000")
    assert sbom()["serialNumber"] != document["serialNumber"]


@pytest.mark.parametrize("value", ["yesterday", "9" * 30])
def test_a_time_that_is_none_is_named(value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    assert cli.main(["sbom"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"gos: SOURCE_DATE_EPOCH is {value}, which is not a time; set it to seconds since 1970, or unset it\n"


def test_the_image_carries_the_document() -> None:
    containerfile = (ROOT / "Containerfile").read_text("utf-8")
    build, _, image = containerfile.partition("\nFROM ${BASE}\n")
    assert build.index("run.sh --prepare") < build.index(".venv/bin/gos sbom > sbom.cdx.json")
    assert "ARG SOURCE_DATE_EPOCH" in build[: build.index("gos sbom")]
    assert "COPY --from=build /opt/gos /opt/gos" in image
    assert "/opt/gos/sbom.cdx.json" in (ROOT / "docs/licences.md").read_text("utf-8")
