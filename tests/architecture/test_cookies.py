"""Every cookie is bound to its host by its name, and out of reach of scripts."""

import re

import pytest

from tests.architecture.source_tree import name_of, product_files

NAME = re.compile(r"""COOKIE\w* = f?["']([^"']+)["']|set_cookie\(["']([^"']+)["']""")
WRITTEN = re.compile(r"^.*(?:SameSite=|samesite).*$", re.MULTILINE)
ATTRIBUTES = ("path=/", "secure", "httponly", "samesite=lax")


def find_unbound(text: str) -> list[str]:
    return [name for match in NAME.finditer(text) if not (name := match[1] or match[2]).startswith("__Host-")]


def find_open(text: str) -> list[str]:
    lines = (line.strip() for line in WRITTEN.findall(text))
    return [line for line in lines if not all(part in line.lower().replace('"', "") for part in ATTRIBUTES)]


def test_every_cookie_is_bound_to_its_host() -> None:
    """By the prefix, with which browsers demand Secure and the path `/` and refuse a domain."""
    texts = {name_of(path): path.read_text("utf-8") for path in product_files()}
    assert sum(len(NAME.findall(text)) for text in texts.values()) >= 8
    assert {name: names for name, text in texts.items() if (names := find_unbound(text))} == {}


def test_every_cookie_is_out_of_reach_of_scripts() -> None:
    texts = {name_of(path): path.read_text("utf-8") for path in product_files()}
    assert sum(len(WRITTEN.findall(text)) for text in texts.values()) >= 4
    assert {name: names for name, text in texts.items() if (names := find_open(text))} == {}


@pytest.mark.parametrize("text", ['COOKIE = "gos"', 'COOKIE_OF_PAGE = "__Secure-gos"'])
def test_an_unbound_cookie_is_found(text: str) -> None:
    assert find_unbound(text)


@pytest.mark.parametrize("missing", ["Path=/", "Secure", "HttpOnly"])
def test_an_open_cookie_is_found(missing: str) -> None:
    whole = "gos=1; Path=/; Secure; HttpOnly; SameSite=Lax"
    assert find_open(whole) == []
    assert find_open(whole.replace(missing, ""))
