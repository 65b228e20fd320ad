"""The message of a coded error is a pattern with values, so it has a translatable id."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core.errors import ApplianceError, Detail
from appliance.core.sentences import PLACEHOLDER, Sentence
from tests.architecture.source_tree import dotted_name, name_of, offences_in, python_files, tree_of

# Modules that build Sentences from others, and from marked texts.
MAKERS = ("appliance/core/sentences.py", "appliance/core/texts.py")
# English only: commands, tests of solutions, the starter, and migrations.
ENGLISH_ONLY = ("appliance/cli/", "appliance/testing/", "appliance/starter/", "appliance/migrations/")


@functools.cache
def message_places() -> dict[str, int]:
    """The position of the message argument by class name, for coded errors and `Detail`."""
    bases = {
        node.name: {dotted_name(base).rpartition(".")[2] for base in node.bases}
        for path in python_files("appliance")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
    }
    errors, before = {ApplianceError.__name__}, 0
    while len(errors) > before:
        before = len(errors)
        errors |= {name for name, above in bases.items() if not errors.isdisjoint(above)}
    return {Detail.__name__: 2} | dict.fromkeys(errors, 0)


def find_raw_sentences(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted_name(node.func).rpartition(".")[2]
            at = message_places().get(name)
            if at is not None and len(node.args) > at and isinstance(node.args[at], ast.JoinedStr):
                yield f"line {node.lineno}: {name} of an f-string; make it a Sentence"
            if name == Sentence.__name__ and node.args:
                yield from find_mismatch(node)


def find_mismatch(node: ast.Call) -> Iterator[str]:
    pattern = node.args[0]
    if not isinstance(pattern, ast.Constant) or not isinstance(pattern.value, str):
        yield f"line {node.lineno}: the id of a Sentence stands in the call itself, or no catalogue finds it"
    elif all(each.arg for each in node.keywords):
        names, rest = {each.arg for each in node.keywords}, PLACEHOLDER.sub("", pattern.value).replace("%%", "")
        if set(PLACEHOLDER.findall(pattern.value)) != names or (names and "%" in rest):
            yield f"line {node.lineno}: the id of a Sentence and its values do not match"


def test_sentences_of_coded_errors_have_ids() -> None:
    def offences(path: Path) -> Iterator[str]:
        return find_raw_sentences(tree_of(path))

    paths = [path for path in python_files("appliance") if not name_of(path).startswith((*ENGLISH_ONLY, *MAKERS))]
    assert offences_in(paths, offences) == {}


@pytest.mark.parametrize(
    "source",
    [
        'NotFound(f"there is no {name}")',
        'errors.NotFound(f"there is no {name}")',
        'Detail("/name", "invalid", f"there is no {name}")',
        'Sentence(text, name=name)',
        'Sentence("there is no %(name)s")',
        'Sentence("there is no %(name)s", nam=name)',
        'Sentence("100 % of %(name)s", name=name)',
    ],
)  # fmt: skip
def test_a_sentence_without_an_id_is_found(source: str) -> None:
    assert len(list(find_raw_sentences(ast.parse(source)))) == 1


@pytest.mark.parametrize("source", ['NotFound("no")', 'Sentence("100 %")', 'Sentence("100 %% of %(name)s", name=name)'])
def test_a_sentence_with_an_id_passes(source: str) -> None:
    assert list(find_raw_sentences(ast.parse(source))) == []
