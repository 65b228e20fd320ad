"""Columns that store the id and the values of a Sentence."""

import json

import pytest

from appliance.core.database.sentence_fields import ErrorField, SentenceField, load_error
from appliance.core.sentences import Sentence

INNER = Sentence("the key %(name)s", name="a/b")
OUTER = Sentence("%(keys)s took %(time)s s", keys=Sentence.joined([INNER, "c"]), time=1.5)


def parts_of(sentence: str) -> tuple[str, dict[str, object]]:
    assert isinstance(sentence, Sentence)
    return sentence.id, dict(sentence.values)


def test_an_error_object_comes_back_with_its_sentences() -> None:
    field = ErrorField()
    error = {"code": "not_found", "message": OUTER, "details": [{"pointer": "/a~b", "message": INNER}], "a/b~c": INNER, "next": "x"}
    stored = field.db_value(error)
    assert stored is not None
    assert json.loads(stored)["message"] == OUTER, "the column itself contains the text"
    back = field.python_value(stored)
    assert back == error
    assert parts_of(back["message"]) == parts_of(OUTER)
    assert parts_of(back["details"][0]["message"]) == parts_of(back["a/b~c"]) == parts_of(INNER)
    assert json.dumps(back) == json.dumps(error), "no more members than before"


@pytest.mark.parametrize("value", [None, {"code": "x", "message": "plain"}, ["plain"], [INNER, "plain"], []])
def test_other_values_come_back_as_they_were(value: object) -> None:
    field = ErrorField()
    back = field.python_value(field.db_value(value))
    assert back == value
    if value == [INNER, "plain"]:
        assert parts_of(back[0]) == parts_of(INNER)


def test_values_stored_by_earlier_releases_are_read() -> None:
    assert load_error('{"message":"old"}') == {"message": "old"}
    assert SentenceField().python_value("old") == "old"


def test_a_text_comes_back_as_the_sentence_that_it_was() -> None:
    field = SentenceField()
    back = field.python_value(field.db_value(OUTER))
    assert back == OUTER
    assert parts_of(back) == parts_of(OUTER)
    for text in (None, "", "plain", Sentence("without values")):
        assert field.db_value(text) == text
        assert field.python_value(text) == text
