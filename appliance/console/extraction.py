"""Finds every text that pages show: in the templates, in Python, in connectors, in the names of states and the sentences of coded
errors."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog
from jinja2 import Environment, nodes

from appliance.connectors import CONTEXT, texts_of
from appliance.connectors.registry import load_registry
from appliance.core import texts
from appliance.core.errors import ApplianceError, Detail
from appliance.core.interface import ui_folder
from appliance.core.sentences import PLACEHOLDER, Sentence

from .frame import formatting

PACKAGE = Path(__file__).parents[1]
# Whose errors no page shows, or only by way of a domain's own.
UNSHOWN = ("cli", "testing", "mcp", "hooks", "starter", "migrations", "upgrade")
PAGES = ("console/", "sites/", "core/errors.py")
_WORDS = re.compile(r"[^\W\d_]")
_CLASS = re.compile(r"^class (\w+)\(([^()]*)\):", re.MULTILINE)


@dataclass(frozen=True)
class Text:
    """A text where it was found; `many` for one with a plural, `is_needed` unless English will do for the while."""

    message: str
    many: str = ""
    context: str = ""
    place: str = ""
    is_needed: bool = True


def extract(*, with_domains: bool = True) -> Iterator[Text]:
    """Every text, as often as it occurs; without the domains all that a translation must have."""
    yield from _of_templates(ui_folder() / "templates")
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    console_modules = [name for name in modules if with_domains or name.startswith(PAGES)]
    sources = {name: modules[name].read_text("utf8") for name in console_modules if not name.startswith(UNSHOWN)}
    errors = _errors(sources.values())
    called = re.compile(rf"\b(?:{'|'.join(sorted({*errors, *FUNCTIONS, Detail.__name__, Sentence.__name__}))})\(")
    for name, source in sources.items():
        if called.search(source):  # reading a module that has no text takes as long as reading one that has
            yield from of_python(ast.parse(source), name, errors)
    if with_domains:
        for name, installed in load_registry().installed.items():
            texts = filter(None, texts_of(installed.connector))
            yield from (Text(each, context=CONTEXT, place=f"connectors/{name}") for each in texts)
    for state in (*formatting.TONES, *formatting.NAMES, *formatting.MORE_NAMES):
        yield Text(formatting.english_name(state), context=formatting.STATE, place="console/frame/formatting.py")


def needed(texts: Iterator[Text]) -> Catalog:
    """A catalogue without translations; a text that may wait has a note that says so."""
    catalogue = Catalog(fuzzy=False)
    everything = list(texts)
    must = {(each.message, each.context) for each in everything if each.is_needed}
    for each in everything:
        key = (each.message, each.many) if each.many else each.message
        note = [] if (each.message, each.context) in must else [WAITS]
        place = each.place.partition(":")[0]
        catalogue.add(key, context=each.context or None, auto_comments=note, user_comments=[], locations=[(place, 0)])
    return catalogue


WAITS = "A coded error: English will do for the while."


# -- templates


def environment() -> Environment:
    """What reads templates as the pages do, without rendering them."""
    parser = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    texts.install_translations(parser)
    return parser


def _of_templates(folder: Path) -> Iterator[Text]:
    reader = environment()
    for path in sorted(folder.rglob("*.html")):
        for text in of_template(reader, path.read_text("utf8")):
            yield Text(text.message, text.many, text.context, f"{path.relative_to(folder)}{text.place}")


def of_template(reader: Environment, source: str) -> Iterator[Text]:
    """The texts of one template, with the lines as places."""
    tree = reader.parse(source)
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name):
            arguments = [each.value for each in call.args if isinstance(each, nodes.Const) and isinstance(each.value, str)]
            if text := _read_call(call.node.name, arguments):
                yield Text(*text, f":{call.lineno}")
    for counted in tree.find_all(nodes.Filter):
        words = [each.value for each in counted.args if isinstance(each, nodes.Const)]
        if counted.name == "count_of" and words:
            yield Text(*_counted(words), "", f":{counted.lineno}")


# How many texts each of the functions for texts is called with.
FUNCTIONS = {"_": 1, "gettext": 1, "mark": 1, "mark_error": 1, "ngettext": 2, "pgettext": 2, "mark_in": 2, "npgettext": 3}


def _counted(words: list[Any]) -> tuple[str, str]:
    one, many = words[0], words[1] if len(words) > 1 else f"{words[0]}s"
    return f"%(num)s {one}", f"%(num)s {many}"


def _read_call(name: str, texts_given: list[str]) -> tuple[str, str, str] | None:
    """(message, plural, context) of a call of one of the functions for texts."""
    signature = FUNCTIONS.get(name)
    if signature is None or len(texts_given) < signature:
        return None
    if name in ("pgettext", "mark_in"):
        return texts_given[1], "", texts_given[0]
    if name == "npgettext":
        return texts_given[1], texts_given[2], texts_given[0]
    if name == "ngettext":
        return texts_given[0], texts_given[1], ""
    return texts_given[0], "", texts.ERROR if name == "mark_error" else ""


# -- Python


def of_python(tree: ast.Module, name: str, errors: Collection[str]) -> Iterator[Text]:
    """The texts of one module: `name` is its path in the package, `errors` are the classes of coded errors."""
    for node in _calls(tree):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        place = f"{name}:{node.lineno}"
        literals = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if text := _read_call(called, literals):
            yield Text(*text, place)
        elif called == Sentence.__name__ and literals and _WORDS.search(PLACEHOLDER.sub("", literals[0])):
            yield Text(literals[0], "", texts.ERROR, place, is_needed=False)
        elif called in errors or called == Detail.__name__:
            index = 2 if called == Detail.__name__ else 0
            sentence = _constant_text(node.args[index]) if len(node.args) > index else None
            if sentence:
                yield Text(sentence, "", texts.ERROR, place, is_needed=False)


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Every call, by a walk that leaves out names and constants: most of what there is, and none has a call in it."""
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, ast.AST) and not isinstance(node, ast.Name | ast.Constant | ast.expr_context):
            if isinstance(node, ast.Call):
                yield node
            waiting += node.__dict__.values()


def _errors(sources: Iterable[str]) -> set[str]:
    """The names of the classes of coded errors, without importing what defines them."""
    classes = [(match[1], match[2].split(", ")) for source in sources for match in _CLASS.finditer(source)]
    error_classes, before = {ApplianceError.__name__}, 0
    while len(error_classes) > before:
        before = len(error_classes)
        error_classes |= {name for name, bases in classes if not error_classes.isdisjoint(bases)}
    return error_classes


def _constant_text(node: ast.expr) -> str | None:
    """The text of a constant; None for anything else, or a text without a word."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _WORDS.search(node.value):
        return node.value
    return None
