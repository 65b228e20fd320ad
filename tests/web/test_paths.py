"""The path table finds what werkzeug's router finds."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, RequestRedirect, Rule

from appliance import api
from appliance.web import PathTable

Match = tuple[str, dict[str, str]] | None
WORDS = ["a", "b", "{x}", "{y}"]
templates = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
methods = st.sampled_from(["GET", "POST"])
parts_of_paths = st.lists(st.sampled_from(["a", "b", "c", "ab", "ä", "%", " "]), min_size=1, max_size=5)
paths = st.builds(lambda parts, end: "/" + "/".join(parts) + end, parts_of_paths, st.sampled_from(["", "/"]))


def unique_names(template: str) -> str:
    """The template with a name of its own for each parameter."""
    parts = template.split("/")
    return "/".join(f"{{p{number}}}" if part.startswith("{") else part for number, part in enumerate(parts))


def table_of(rules: Sequence[tuple[str, str]]) -> PathTable[str]:
    table: PathTable[str] = PathTable()
    for method, template in rules:
        table.add(method, template, f"{method} {template}")
    return table


def find_with_werkzeug(rules: Sequence[tuple[str, str]], method: str, path: str) -> Match:
    routes = []
    for each, template in rules:
        rule = re.sub(r"{(\w+)}", r"<\1>", template)
        routes.append(Rule(rule, methods=[each], endpoint=f"{each} {template}", strict_slashes=False))
    try:
        endpoint, values = Map(routes).bind("host").match(path, method=method)
    except (HTTPException, RequestRedirect):
        return None
    return str(endpoint), dict(values)


@given(st.lists(st.tuples(methods, templates.map(unique_names)), min_size=1, max_size=8, unique=True), methods, paths)
@settings(max_examples=200, deadline=None)
def test_the_same_template_is_found(rules: list[tuple[str, str]], method: str, path: str) -> None:
    assert table_of(rules).find(method, path) == find_with_werkzeug(rules, method, path)


@pytest.mark.parametrize("path", ["//a", "/a//", "/a//b", "", "/", "//"])
def test_an_empty_part_is_left_to_quart(path: str) -> None:
    assert table_of([("GET", "/a"), ("GET", "/a/{x}")]).find("GET", path) is None


def test_every_route_is_found_at_its_own_address() -> None:
    rules = [(each.method, each.path) for each in api.load_routes() if "{path}" not in each.path]
    table = table_of(rules)
    for method, template in rules:
        values = {name: f"{name}-1" for name in re.findall(r"{(\w+)}", template)}
        assert table.find(method, template.format(**values)) == (f"{method} {template}", values)
