"""Finds visible text that is not in a catalogue: in templates, their attributes and expressions, and in console Python."""

import ast
import re
from collections.abc import Iterator

from jinja2 import Environment, nodes

TOKEN = re.compile(
    r"(?P<comment>\{#.*?#\})|(?P<message>\{%-?\s*trans\b.*?\bendtrans\s*-?%\})|(?P<statement>\{%.*?%\})"
    r"""|(?P<expression>\{\{(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^"'])*?\}\})"""
    r"|(?P<code><(?P<name>script|style|code|kbd)\b.*?</(?P=name)>)|(?P<declaration><![^>]*>)"
    r"""|(?P<tag></?(?:[a-zA-Z]|\{\{)(?:\{\{.*?\}\}|\{%.*?%\}|"(?:\{\{.*?\}\}|\{%.*?%\}|[^"{]|\{)*"|'[^']*'|[^<>"'{]|\{)*>)"""
    r"|(?P<text>[^<{]+|[<{])",
    re.DOTALL,
)
SEEN_ATTRIBUTE = re.compile(r'\s(aria-label|title|placeholder|alt|label)="((?:\{\{.*?\}\}|\{%.*?%\}|[^"{]|\{)*)"', re.DOTALL)
JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_ATTRIBUTE_PIECE = re.compile(r"""[\w:-]+="[^"]*"?|"|^-[a-z]+|\b(?:autofocus|checked|selected|hidden|open|disabled|required)\b""")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
# The one name that no language changes.
_NAMES = re.compile(r"\bGoverned Operations Service\b")
_ENTITY = re.compile(r"&#?\w+;")
_ADDRESS = re.compile(r"\S*/\S*|\w+[._]\w\S*")
FUNCTIONS = {"_", "gettext", "ngettext", "pgettext", "npgettext", "mark", "mark_in", "mark_error", "tell"}
_FILTERS = {"count_of"}
# A sentence, or one word with a capital; codes, class names and names of settings are neither.
_SENTENCE = re.compile(r"[A-Za-z,]{2,} [A-Za-z(]")
# HTML, whole documents such as an example in YAML, and what headers say.
_CODE = re.compile(r"<|.*\n|Location$|Lax$|.*max-age=")
# Not a class, a query, a method or the beginning of a name.
_WORD = re.compile(r"(?:[(,;:] ?)?[A-Za-z][a-z]+[a-z ,)]*")
_TITLE = re.compile(r"[A-Z][a-z]{2,}(?!\w*[-_/.:])")


def is_seen(text: str) -> bool:
    """Whether literal text of a page holds words."""
    return bool(_LETTERS.search(_ADDRESS.sub("", _ENTITY.sub("", _ATTRIBUTE_PIECE.sub("", _NAMES.sub("", text))))))


def is_worded(text: str) -> bool:
    """Whether a constant reads like something for people."""
    return not _CODE.match(text) and bool(_SENTENCE.search(text) or _TITLE.match(text.strip()))


def in_template(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) for each text that is not translated."""
    for match in TOKEN.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        text = match[0]
        if match["text"] and is_seen(text):
            yield line, text.strip()
        for constant in _answers_of(text) if match["expression"] else ():
            if _WORD.fullmatch(constant):
                yield line, repr(constant)
        for attribute in SEEN_ATTRIBUTE.finditer(text if match["tag"] else ""):
            if is_seen(JINJA.sub("", attribute[2])):
                yield line, attribute[0].strip()
    yield from _in_expressions(source)


def _in_expressions(source: str) -> Iterator[tuple[int, str]]:
    tree = Environment(autoescape=True, extensions=["jinja2.ext.i18n", "jinja2.ext.do"]).parse(source)
    waiting: list[nodes.Node] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, nodes.Const) and isinstance(node.value, str) and is_worded(node.value):
            yield node.lineno, repr(node.value)
        waiting += _to_look_at(node)


def _answers_of(expression: str) -> Iterator[str]:
    """The constants that an expression between tags can output, including single lower-case words."""
    waiting: list[nodes.Node] = list(Environment(autoescape=True).parse(expression).find_all(nodes.Output))
    while waiting:
        node = waiting.pop()
        if isinstance(node, nodes.Const) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, nodes.CondExpr):
            waiting += [each for each in (node.expr1, node.expr2) if each is not None]
        elif isinstance(node, nodes.Output | nodes.Or | nodes.And | nodes.Concat):
            waiting += node.iter_child_nodes()


def _to_look_at(node: nodes.Node) -> list[nodes.Node]:
    """The parts of a node that can be shown: not those that are compared, looked up, or translated already."""
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name in FUNCTIONS:
        return []
    if isinstance(node, nodes.Compare | nodes.Test | nodes.Extends | nodes.FromImport | nodes.Include | nodes.Getitem):
        return []
    if isinstance(node, nodes.Filter) and node.name in _FILTERS:
        return [node.node] if node.node else []
    return list(node.iter_child_nodes())


# -- Python

_SILENT_CALLS = {
    "page", "base_page", "compile", "removeprefix", "getLogger", "Redirect", "Download", "debug", "info", "warning", "exception",
}  # fmt: skip


def in_python(source: str) -> Iterator[tuple[int, str]]:
    """The same for a module of the console: constants that read like sentences or titles and are not marked.

    Not looked at: docstrings, annotations, log lines, and the sentences of coded errors, which are marked by being raised.
    """
    tree = ast.parse(source)
    silent = {id(node) for node in _silent(tree)}
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if id(node) in silent:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values)
            if is_worded(text):
                yield node.lineno, text
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_worded(node.value):
            yield node.lineno, node.value
        waiting += ast.iter_child_nodes(node)


def _silent(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            yield node.body[0]
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        if isinstance(node, ast.FunctionDef) and node.returns:
            yield node.returns
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _name(node) in FUNCTIONS | _SILENT_CALLS):
            yield node
        if isinstance(node, ast.Call) and (_name(node)[:1].isupper() and _is_error(_name(node))):
            yield node


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _is_error(name: str) -> bool:
    from appliance.core import errors

    return name == "Detail" or issubclass(getattr(errors, name, object), errors.ApplianceError)
