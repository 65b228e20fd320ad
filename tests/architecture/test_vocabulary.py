"""One word per thing: identifiers and pages use the words of the glossary, never their synonyms."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, name_of, offences_in, product_files, project_files, tree_of

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


def identifiers_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
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
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.value.lineno, node.arg


def find_other_words(path: Path) -> Iterator[str]:
    for line, name in identifiers_of(tree_of(path)):
        yield from (f"line {line}: {problem}" for problem in find_synonyms(name))
    for part in path.relative_to(ROOT).parts:
        yield from find_synonyms(part.removesuffix(".py"))


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
