"""What templates name exists in the code, in this project's words; a renamed attribute would fail only when its page is shown."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, nodes

from tests.architecture.source_tree import ROOT, offences_in, project_files, python_files, tree_of
from tests.architecture.test_vocabulary import DIALECT, PARTICIPLES

TEMPLATES = ROOT / "ui" / "templates"
PAGES = [path for path in project_files() if path.is_relative_to(TEMPLATES) and path.suffix == ".html"]
ENVIRONMENT = Environment(extensions=["jinja2.ext.i18n"], autoescape=True)
# Attributes of Jinja's own `loop`.
LOOP = {"first", "last", "index", "index0", "length"}


@functools.cache
def defined_members() -> set[str]:
    """Every name that the appliance defines, stores or writes as a text: whatever a template could read as a member."""
    members = {*dir(str), *dir(dict), *dir(list), *LOOP}
    for path in python_files("appliance", "plugins"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                members.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                members.add(node.id if isinstance(node, ast.Name) else node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                members.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                members.add(node.value)
    return members


def find_unknown_members(template: nodes.Template) -> Iterator[str]:
    written = {node.key.value for node in template.find_all(nodes.Pair) if isinstance(node.key, nodes.Const)}
    for node in template.find_all(nodes.Getattr):
        if node.attr not in written and node.attr not in defined_members():
            yield f"line {node.lineno}: nothing defines `.{node.attr}`"


def find_riddles(template: nodes.Template) -> Iterator[str]:
    names = [
        *((node.lineno, node.name) for node in template.find_all(nodes.Name)),
        *((node.lineno, node.name) for node in template.find_all(nodes.Macro)),
        *((node.lineno, node.attr) for node in template.find_all(nodes.Getattr)),
    ]
    for line, name in names:
        bare = name.strip("_")
        if bare in PARTICIPLES or bare.removesuffix("s") in DIALECT:
            yield f"line {line}: {name}: say {PARTICIPLES.get(bare) or DIALECT[bare.removesuffix('s')]}"


def find_problems(path: Path) -> Iterator[str]:
    template = ENVIRONMENT.parse(path.read_text("utf8"))
    yield from find_unknown_members(template)
    yield from find_riddles(template)


def test_members_exist_and_names_say_what_they_are() -> None:
    assert offences_in(PAGES, find_problems) == {}


def test_an_unknown_member_and_a_riddle_are_noticed() -> None:
    template = ENVIRONMENT.parse("{{ export.strangers_of_nobody }}{% set told = 1 %}")
    assert len([*find_unknown_members(template), *find_riddles(template)]) == 2
