"""Redacted values never leave the appliance and are never recorded; with `restore` the answer has them again."""

import time

import pytest

from appliance.llm.redaction import Mask, PatternInvalid, compile_pattern
from tests.llm.conftest import Desk
from tests.llm.provider import Say

REDACTION = {
    "patterns": [{"use": "email"}, {"use": "iban"}, {"use": "card"}, {"name": "CUSTOMER", "pattern": r"C-\d{4}"}],
    "restore": True,
}
SECRETS = ("ann@example.com", "DE89 3704 0044 0532 0130 00", "4111 1111 1111 1111", "C-1234")
TEXT = f"Write to {SECRETS[0]} about {SECRETS[1]}, {SECRETS[2]} and {SECRETS[3]}; again {SECRETS[0]}."


def test_placeholders_leave_and_the_answer_has_the_values(desk: Desk) -> None:
    desk.profile(redaction=REDACTION)
    desk.provider.say("I wrote to [EMAIL_1] about [CUSTOMER_1].")
    done = desk.ask(TEXT, system=f"For {SECRETS[0]}", input={"mail": SECRETS[0], "number": 4111111111111111})
    sent = str(desk.provider.requests[0].body)
    assert not [secret for secret in (*SECRETS, "4111111111111111") if secret in sent]
    assert sent.count("[EMAIL_1]") == 4
    assert done.value == "I wrote to ann@example.com about C-1234."
    recorded = str(done.to_journal())
    assert not [secret for secret in SECRETS if secret in recorded]
    assert "[CUSTOMER_1]" in recorded


def test_values_the_model_adds_are_not_recorded_either(desk: Desk) -> None:
    desk.profile(redaction=REDACTION)
    desk.provider.say("Ask bob@example.com")
    done = desk.ask("Whom?")
    assert done.value == "Ask bob@example.com"
    assert "bob@example.com" not in str(done.to_journal())


def test_values_are_restored_before_the_answer_is_validated(desk: Desk) -> None:
    desk.profile(redaction=REDACTION)
    desk.provider.say({"to": "[EMAIL_1]"})
    schema = {"type": "object", "properties": {"to": {"type": "string", "format": "email"}}}
    done = desk.ask(TEXT, output=schema)
    assert (done.value, len(desk.provider.requests)) == ({"to": "ann@example.com"}, 1)


def test_a_question_may_leave_the_placeholders(desk: Desk) -> None:
    desk.profile(redaction=REDACTION)
    desk.provider.say("To [EMAIL_1]")
    assert desk.ask(TEXT, restore=False).value == "To [EMAIL_1]"


def test_a_fallback_profile_redacts_as_the_first_does(desk: Desk) -> None:
    desk.profile(redaction=REDACTION, fallbacks=["spare"])
    desk.profile("spare")
    desk.provider.say(Say(status=500), "fine")
    desk.ask(TEXT)
    assert len(desk.provider.requests) == 2
    assert not [secret for secret in SECRETS if secret in str([request.body for request in desk.provider.requests])]


def test_a_later_pattern_does_not_look_into_a_placeholder() -> None:
    mask = Mask((("EMAIL", r"\w+@\w+\.\w+"), ("WORD", r"[A-Z]{3,}")))
    hidden = mask.hide("ABC a@b.cd")
    assert hidden == "[WORD_1] [EMAIL_1]"
    assert mask.restore(hidden) == "ABC a@b.cd"


def test_a_text_that_looks_like_a_placeholder_stays_what_it_is() -> None:
    mask = Mask((("EMAIL", r"\w+@\w+\.\w+"),))
    hidden = mask.hide("[EMAIL_1] is not a@b.cd")
    assert hidden == "[EMAIL_1] is not [EMAIL_2]"
    assert mask.restore({"x": [hidden]}) == {"x": ["[EMAIL_1] is not a@b.cd"]}


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "x*", "(?=a)b"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(PatternInvalid):
        compile_pattern(pattern)


def test_a_hostile_pattern_takes_no_time() -> None:
    began = time.monotonic()
    Mask((("X", r"(a+)+$"), ("Y", r"(.*a){20}b"))).hide("a" * 100_000 + "!")
    assert time.monotonic() - began < 5
