"""One word per thing: identifiers and pages use the words of the glossary, never their synonyms."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, name_of, offences_in, product_files, project_files, python_files, tree_of

# synonym (words in sequence, singular) -> the word of this project
SYNONYMS: dict[tuple[str, ...], str] = {
    ("workflow",): "process",
    ("work", "flow"): "process",
    ("playbook",): "process",
    ("flow", "run"): "execution",
    ("job", "run"): "execution",
    ("task", "run"): "execution",
    ("process", "run"): "execution",
    ("process", "execution"): "execution",
    ("step", "execution"): "step_run",
    ("workspace",): "tenant",
    ("organisation",): "tenant",
    ("organization",): "tenant",
    ("org",): "tenant",
    ("customer", "tenant"): "tenant",
    ("team", "member"): "membership",
    ("apikey",): "api_key",
    ("api", "token"): "api_key",
    ("access", "key"): "api_key",
    ("data", "pool"): "datapool",
    ("data", "store"): "datapool",
    ("data", "table"): "collection",
    ("web", "app"): "webapp",
    ("website",): "webapp",
    ("web", "site"): "webapp",
    ("sign", "off"): "approval",
    ("web", "hook"): "webhook",
}
# A past participle alone does not say what a thing is; the second column is what it could be instead.
PARTICIPLES = {
    "asked": "request, query",
    "begun": "started, a run",
    "found": "match, rows, entity",
    "given": "value, arguments, input",
    "gone": "deleted, missing",
    "heard": "events, messages",
    "held": "lock, reservation, value",
    "judged": "decision, result",
    "kept": "stored, cached, files",
    "made": "created, result",
    "meant": "expected, target",
    "named": "names, properties",
    "said": "message, text",
    "shown": "visible, text",
    "taken": "used, claimed",
    "told": "message, view, recipients",
    "wanted": "expected, filter, selection",
}
# Words that only this project used -> what the field calls it
DIALECT = {
    "aftermath": "compensation",
    "crowding": "request limits",
    "grounds": "dependencies",
    "hearer": "recipient, subscriber",
    "judging": "evaluation, validation",
    "likeness": "details",
    "loan": "lease",
    "particular": "details",
    "road": "transport",
    "shelf": "cache",
    "standing": "status, state",
    "stretch": "run segment",
    "surrounding": "context, environment",
    "wish": "filter, spec, request",
}
# Names of columns and of stored or public members stay.
STORED = ("models.py", "migrations", "manifests.py")
PUBLIC = {"Gone"}
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Words of the glossary that are written with a capital in their middle.
ONE_WORD = {"WebApp": "Webapp", "DataPool": "Datapool", "ProcessFlow": "Processflow"}


def words_of(identifier: str) -> list[str]:
    for written, word in ONE_WORD.items():
        identifier = identifier.replace(written, word)
    words = [word.lower() for word in WORD.findall(identifier)]
    return [word.removesuffix("s") if len(word) > 3 and not word.endswith("ss") else word for word in words]


@functools.cache
def find_synonyms(text: str) -> list[str]:
    """`identifier: say …` for every banned word, or sequence of words, in an identifier."""
    words = words_of(text)
    problems = []
    for synonym, word in SYNONYMS.items():
        size = len(synonym)
        if any(tuple(words[start : start + size]) == synonym for start in range(len(words) - size + 1)):
            problems.append(f"{text}: say {word}")
    return problems


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of everything this code names: functions, classes, parameters, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def identifiers_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What this code names, and the keywords of its calls."""
    yield from defined_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg:
            yield node.value.lineno, node.arg


def find_other_words(path: Path) -> Iterator[str]:
    for line, name in identifiers_of(tree_of(path)):
        yield from (f"line {line}: {problem}" for problem in find_synonyms(name))
    for part in path.relative_to(ROOT).parts:
        yield from find_synonyms(part.removesuffix(".py"))


def find_riddles(path: Path) -> Iterator[str]:
    """Names that are a bare past participle, and names of modules, classes and functions in words of our own."""
    if not set(STORED).isdisjoint(path.parts):
        return
    for line, name in defined_names(tree_of(path)):
        bare = name.strip("_").lower()
        if bare in PARTICIPLES and name not in PUBLIC:
            yield f"line {line}: {name}: say what it is ({PARTICIPLES[bare]})"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("test_"):
            yield from (f"line {node.lineno}: {problem}" for problem in find_dialect(node.name))
    for part in path.relative_to(ROOT).parts:
        yield from find_dialect(part.removesuffix(".py"))


@functools.cache
def find_dialect(name: str) -> list[str]:
    """`name: say …` for every word of the dialect in it."""
    return [f"{name}: say {DIALECT[word]}" for word in words_of(name) if word in DIALECT]


def test_names_say_what_a_thing_is() -> None:
    assert offences_in(python_files("appliance", "plugins", "tests"), find_riddles) == {}


@pytest.mark.parametrize("source", ["found = 1", "def f(given): ...", "def _told(): ...", "class Asked: ...", "self.kept = 1"])
def test_a_bare_participle_is_a_riddle(source: str) -> None:
    assert [name for _, name in defined_names(ast.parse(source)) if name.strip("_").lower() in PARTICIPLES]


def test_identifiers_use_the_words_of_the_glossary() -> None:
    assert offences_in(product_files(), find_other_words) == {}


def test_pages_use_the_words_of_the_glossary() -> None:
    single = [re.escape(words[0]) for words in SYNONYMS if len(words) == 1 and len(words[0]) > 3]
    banned = re.compile(rf"\b(?:{'|'.join(single)})s?\b", re.IGNORECASE)
    pages = [path for path in project_files() if path.is_relative_to(ROOT / "ui") and path.suffix == ".html"]
    lines = ((path, number, line) for path in pages for number, line in enumerate(path.read_text("utf-8").splitlines(), 1))
    assert [f"{name_of(path)}:{number}: {line.strip()}" for path, number, line in lines if banned.search(line)] == []


@pytest.mark.parametrize(
    "name",
    ["start_workflow", "WorkflowRunner", "flow_run_id", "JobRuns", "workspaces", "orgId", "data_pools", "apiToken"],
)
def test_a_synonym_is_found(name: str) -> None:
    assert find_synonyms(name)


@pytest.mark.parametrize(
    "name",
    [
        "process",
        "run_process",
        "datapool",
        "WebAppRoute",
        "DataPoolReach",
        "tenant_id",
        "step_run",
        "api_key",
        "origin",
        "job_name",
    ],
)
def test_words_of_the_glossary_pass(name: str) -> None:
    assert find_synonyms(name) == []
