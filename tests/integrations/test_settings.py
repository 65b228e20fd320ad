"""Extracting and restoring the secrets of settings: only the connector receives them."""

import base64
import json
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.connectors import Redactor
from appliance.core.errors import ValidationFailed
from appliance.core.patches import merge_patch
from appliance.integrations.settings import Sealed, extract_secrets, open_settings, to_view
from appliance.integrations.spec import is_sealed

SCHEMA = {
    "properties": {
        "token": {"type": "string", "secret": True},
        "plain": {"type": "string"},
        "auth": {"properties": {"password": {"type": "string", "secret": True}}},
        "headers": {"additionalProperties": {"secret": True}},
        "list": {"items": {"properties": {"a/b": {"secret": True}}}},
    }
}
SETTINGS: dict[str, Any] = {
    "token": "t",
    "plain": "p",
    "auth": {"password": "w", "user": "u"},
    "headers": {"X": "h"},
    "list": [{"a/b": "l", "c": 1}],
}


def test_every_secret_is_extracted_and_restored() -> None:
    extracted = extract_secrets(SCHEMA, SETTINGS, {}, 5)
    assert {pointer: secret.value for pointer, secret in extracted.secrets.items()} == {
        "/token": "t",
        "/auth/password": "w",
        "/headers/X": "h",
        "/list/0/a~1b": "l",
    }
    assert [value in json.dumps(extracted.settings) for value in ('"t"', '"w"', '"h"', '"l"', '"p"')] == [False] * 4 + [True]
    opened = open_settings(extracted.settings, extracted.secrets, lambda _: None)
    assert opened.settings == SETTINGS
    assert sorted(opened.secrets) == ["h", "l", "t", "w"]


def test_a_view_sent_back_keeps_its_secrets() -> None:
    extracted = extract_secrets(SCHEMA, SETTINGS, {}, 5)
    view = to_view(extracted.settings, extracted.secrets, lambda ms: f"at {ms}")
    assert view["token"] == {"sealed": True, "updated_at": "at 5"}
    again = extract_secrets(SCHEMA, {**view, "auth": {"password": "new"}}, extracted.secrets, 9)
    assert again.secrets["/token"] == Sealed("t", 5)
    assert again.secrets["/auth/password"] == Sealed("new", 9)


def test_a_marker_without_a_sealed_value_is_refused() -> None:
    with pytest.raises(ValidationFailed) as caught:
        extract_secrets(SCHEMA, {"token": {"sealed": True}}, {}, 1)
    assert caught.value.details[0].pointer == "/settings/token"


def test_references_are_resolved_at_the_call_and_are_not_secret() -> None:
    settings = {"token": "= secrets.erp_token", "plain": "Bearer {{ secrets.other }}!", "list": ["\\=literal"]}
    extracted = extract_secrets(SCHEMA, settings, {}, 1)
    assert extracted.settings == settings
    opened = open_settings(extracted.settings, extracted.secrets, {"erp_token": "E", "other": "O"}.get)
    assert opened.settings == {"token": "E", "plain": "Bearer O!", "list": ["=literal"]}
    assert sorted(opened.secrets) == ["E", "O"]
    assert open_settings(extracted.settings, {}, lambda _: None).unresolved == {"/token": "erp_token", "/plain": "other"}


def test_a_secret_that_begins_with_an_equals_sign_is_written_with_a_backslash() -> None:
    extracted = extract_secrets(SCHEMA, {"token": "\\=pass"}, {}, 1)
    assert extracted.secrets["/token"].value == "=pass"


@pytest.mark.parametrize("text", ["= input.x", "= secrets", "=secrets.a.b", "= secrets.a + 1", "{{ input.x }}", "{{}}"])
def test_other_expressions_in_settings_are_refused(text: str) -> None:
    with pytest.raises(ValidationFailed, match=r"secrets\.<name>"):
        open_settings({"plain": text}, {}, lambda _: "x")


def test_an_inserted_secret_is_not_evaluated_again() -> None:
    assert open_settings({"plain": "= secrets.a"}, {}, lambda _: "{{ secrets.b }}").settings == {"plain": "{{ secrets.b }}"}


@given(st.text(min_size=8, max_size=30), st.text(max_size=10), st.text(max_size=10))
def test_secrets_are_redacted_in_every_usual_encoding(secret: str, before: str, after: str) -> None:
    redactor = Redactor([secret])
    assert secret not in redactor.text(f"{before}{secret}{after}").replace("[redacted]", "")
    assert secret not in json.dumps(redactor.json({secret: [secret, {"a": f"x{secret}"}]}), ensure_ascii=False)
    # Whatever surrounds it in base64, at least the secret's middle must not be readable.
    encoded = base64.b64encode(f"user:{secret}".encode()).decode()
    assert redactor.text(f"Basic {encoded}") != f"Basic {encoded}"
    for encoded in (quote(secret, safe=""), quote_plus(secret), json.dumps(secret)):
        assert redactor.text(encoded) != encoded


def test_short_values_are_not_redacted() -> None:
    assert Redactor(["ok"]).text("this is ok") == "this is ok"


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"t": {"sealed": True, "updated_at": "x"}}, {"t": "new"}, {"t": "new"}),
        ({"t": "old"}, {"t": {"sealed": True}}, {"t": {"sealed": True}}),
        ({"t": {"sealed": True}}, {"t": {"a": 1}}, {"t": {"a": 1}}),
    ],
)
def test_merging_keeps_markers_whole(target: Any, patch: Any, merged: Any) -> None:
    assert merge_patch(target, patch, is_sealed) == merged
