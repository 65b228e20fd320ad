"""Sentences keep their id and values, by which they are translated."""

import copy
import json
import pickle
from pathlib import Path

import pytest

from appliance.core.catalogues import read_catalogue
from appliance.core.errors import NotFound
from appliance.core.json_schema import compile_schema
from appliance.core.sentences import Sentence
from appliance.core.texts import ENGLISH, Language
from tests.core.test_catalogues import message, po

SENTENCE = Sentence("there is no %(kind)s %(name)s; 100 %% sure", kind="user", name=repr("ada"))


@pytest.fixture
def german(tmp_path: Path) -> Language:
    return read_catalogue(
        po(
            tmp_path, "de.po",
            message("%(name)s failed: %(reason)s", "%(reason)s, darum gescheitert: %(name)s", "error"),
            message("it took %(time)s", "es dauerte %(time)s", "error"),
            message("100 % sure", "ganz sicher", "error"),
            message("%(slug)s has no action; ask for those of %(slug)s", "%(slug)s hat keine Aktion", "error"),
        )
    ).language  # fmt: skip


def test_for_programs_a_sentence_is_its_text() -> None:
    assert SENTENCE == "there is no user 'ada'; 100 % sure"
    assert json.dumps({"message": SENTENCE}) == '{"message": "there is no user \'ada\'; 100 % sure"}'
    assert hash(SENTENCE) == hash("there is no user 'ada'; 100 % sure")
    assert Sentence("100 % sure") == "100 % sure", "without values a percent sign is one"


def test_a_sentence_fits_the_schema_of_a_text() -> None:
    schema = compile_schema({"properties": {"message": {"type": "string", "maxLength": 40}}})
    assert schema.problems({"message": SENTENCE}) == []
    (problem,) = schema.problems({"message": Sentence("%(long)s", long="x" * 41)})
    assert (problem.pointer, problem.code) == ("/message", "maxLength")


def test_a_sentence_survives_copying_and_pickling() -> None:
    for got in (copy.deepcopy(SENTENCE), pickle.loads(pickle.dumps(SENTENCE)), str(NotFound(SENTENCE))):  # noqa: S301 - our own
        assert isinstance(got, Sentence)
        assert (got, got.id, dict(got.values)) == (SENTENCE, SENTENCE.id, {"kind": "user", "name": "'ada'"})


def test_a_sentence_is_translated_by_its_id_with_its_values(german: Language) -> None:
    inner = Sentence("it took %(time)s", time=Sentence("%(number)s s", number=1.5))
    outer = Sentence("%(name)s failed: %(reason)s", name="weigh", reason=inner)
    assert outer == "weigh failed: it took 1.5 s"
    assert german.translate(outer) == "es dauerte 1,5 s, darum gescheitert: weigh"
    assert german.translate(Sentence("100 % sure")) == "ganz sicher"
    assert german.translate(Sentence("nobody knows %(what)s", what=inner)) == "nobody knows es dauerte 1,5 s"
    assert ENGLISH.translate(outer) == outer
    slug = Sentence("%(slug)s has no action; ask for those of %(slug)s", slug="crm")
    assert (slug, german.translate(slug)) == ("crm has no action; ask for those of crm", "crm hat keine Aktion")
