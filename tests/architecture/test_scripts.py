"""Our own scripts for browsers turn no text into code or markup, keep nothing sensitive, and talk to no other window."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, name_of, offences_in, project_files

SCRIPTS = [path for path in project_files() if path.suffix == ".js" and path.is_relative_to(ROOT / "ui")]
RISKS = re.compile(
    r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|srcdoc|postMessage|importScripts|eval)\b"
    r"|\bdocument\.write|\bnew Function\b|\bFunction\(|\bset(?:Timeout|Interval)\(\s*[\"'`]"
    r"|addEventListener\(\s*[\"']message[\"']|\bwindow\.onmessage|\bdocument\.(?:cookie|domain)|__proto__"
    r"|\bRTCPeerConnection\b|\bnew WebSocket\b"
)
RENDERED_BY_THE_SERVER = {  # whose templates escape every value
    "ui/static/console/console.js": ["DOMParser"],
    "ui/static/console/tail.js": ["innerHTML"],
}
STORAGE = re.compile(r"\b(?:localStorage|sessionStorage|indexedDB|caches)\b(?P<use>[^;]*)")
PREFERENCES = ('("keys"', '("gos.samples"')  # whether letters are shortcuts, and the language of samples


def find_risks(path: Path) -> list[str]:
    matches = Counter(RISKS.findall(path.read_text("utf-8")))
    return sorted((matches - Counter(RENDERED_BY_THE_SERVER.get(name_of(path), []))).elements())


def find_storage(text: str) -> list[str]:
    uses = (match for match in STORAGE.finditer(text))
    return [match[0] for match in uses if not match["use"].lstrip(".").removeprefix("get").removeprefix("set").startswith(
        tuple(f"Item{preference}" for preference in PREFERENCES)
    )]  # fmt: skip


def test_scripts_make_no_code_and_no_markup_of_text() -> None:
    assert len(SCRIPTS) >= 5
    assert offences_in(SCRIPTS, find_risks) == {}


def test_scripts_store_nothing_but_preferences() -> None:
    assert offences_in(SCRIPTS, lambda path: find_storage(path.read_text("utf-8"))) == {}


@pytest.mark.parametrize(
    "source",
    [
        "a.innerHTML = b", "eval(a)", "setTimeout('a()', 1)", "window.onmessage = f", 'addEventListener("message", f)',
        "x.__proto__ = 1",
    ],
)  # fmt: skip
def test_a_risk_is_found(source: str) -> None:
    assert RISKS.search(source)


@pytest.mark.parametrize("source", ['localStorage.setItem("key", key)', "sessionStorage.token = 1", 'indexedDB.open("a")'])
def test_stored_data_is_found(source: str) -> None:
    assert find_storage(source)
    assert find_storage('localStorage.setItem("keys", "on"); localStorage.getItem("gos.samples")') == []
