"""Verification of inbound webhooks against their senders' own library and published examples: nothing altered or old passes."""

import base64
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from appliance.core.errors import InvalidSignature
from appliance.processes.triggers.signatures import TOLERANCE_S, Request, verify

NOW_S = 1_795_000_000
SHARED = "shared"
BODY = b'{"id": "evt_1", "event_id": "Ev1", "total": 440}'
STANDARD = "whsec_" + base64.b64encode(b"s" * 24).decode()


def standard(moment: int, secret: str = STANDARD) -> dict[str, str]:
    stamp = datetime.fromtimestamp(moment, UTC)
    signature = Webhook(secret).sign("msg_1", stamp.replace(tzinfo=None), BODY.decode())
    return {"webhook-id": "msg_1", "webhook-timestamp": str(moment), "webhook-signature": f"v1a,AAAA v1,AAAA {signature}"}


def stripe(moment: int, secret: str = SHARED) -> dict[str, str]:
    signed = hmac.digest(secret.encode(), f"{moment}.".encode() + BODY, "sha256").hex()
    return {"stripe-signature": f"t={moment},v0=ff,v1={'0' * 64},v1={signed}"}


def slack(moment: int, secret: str = SHARED) -> dict[str, str]:
    signed = hmac.digest(secret.encode(), f"v0:{moment}:".encode() + BODY, "sha256").hex()
    return {"x-slack-request-timestamp": str(moment), "x-slack-signature": f"v0={signed}"}


def github(moment: int, secret: str = SHARED) -> dict[str, str]:
    signed = hmac.digest(secret.encode(), BODY, "sha256").hex()
    return {"x-hub-signature-256": f"sha256={signed}", "x-github-delivery": "guid-1"}


def own(moment: int, secret: str = SHARED) -> dict[str, str]:
    signed = base64.b64encode(hmac.digest(secret.encode(), f"{moment}.".encode() + BODY, "sha512")).decode()
    return {"x-sig": f"v={signed}", "x-at": str(moment), "x-id": "own-1"}


def header(moment: int, secret: str = SHARED) -> dict[str, str]:
    return {"x-token": secret, "x-id": "hdr-1"}


OWN = {
    "kind": "hmac", "header": "x-sig", "algorithm": "sha512", "encoding": "base64", "prefix": "v=", "signed": "timestamp.body",
    "timestamp_header": "x-at", "delivery_header": "x-id",
}  # fmt: skip
SENDERS: dict[str, tuple[Mapping[str, Any], Any, str, str | None]] = {
    "standard-webhooks": ({"kind": "standard-webhooks"}, standard, STANDARD, "msg_1"),
    "stripe": ({"kind": "stripe"}, stripe, "shared", "evt_1"),
    "slack": ({"kind": "slack"}, slack, "shared", "Ev1"),
    "github": ({"kind": "github"}, github, "shared", "guid-1"),
    "hmac": (OWN, own, "shared", "own-1"),
    "header": ({"kind": "header", "header": "x-token", "delivery_header": "x-id"}, header, "shared", "hdr-1"),
}
EVERY = pytest.mark.parametrize("name", SENDERS)
TIMED = pytest.mark.parametrize("name", ["standard-webhooks", "stripe", "slack", "hmac"])


def is_genuine(name: str, headers: Mapping[str, str], body: bytes = BODY, secret: str | None = None) -> bool:
    settings, _, existing, delivery = SENDERS[name]
    try:
        assert verify(settings, secret or existing, Request("orders", headers, body), NOW_S * 1000).delivery == delivery
    except InvalidSignature:
        return False
    return True


@EVERY
def test_a_valid_signature_is_accepted(name: str) -> None:
    assert is_genuine(name, SENDERS[name][1](NOW_S))


@EVERY
def test_a_missing_or_altered_header_is_refused(name: str) -> None:
    headers = SENDERS[name][1](NOW_S)
    signing = [each for each in headers if each not in ("x-id", "x-github-delivery")]
    for each in signing:
        assert not is_genuine(name, {other: value for other, value in headers.items() if other != each})
        for broken in ("", "x", headers[each][:-1], headers[each] + "A", "v1,", "é" * 5, "t=,v1=", "9" * 40):
            assert not is_genuine(name, {**headers, each: broken}), (each, broken)


@EVERY
def test_another_secret_is_refused(name: str) -> None:
    other = "whsec_" + base64.b64encode(b"t" * 24).decode()
    assert not is_genuine(name, SENDERS[name][1](NOW_S), secret=other)


@pytest.mark.parametrize("name", [each for each in SENDERS if each != "header"])
def test_an_altered_body_is_refused(name: str) -> None:
    for body in (BODY + b" ", BODY[:-1], b"", BODY.replace(b"440", b"441")):
        assert not is_genuine(name, SENDERS[name][1](NOW_S), body)


@TIMED
def test_an_old_or_future_timestamp_is_refused(name: str) -> None:
    make = SENDERS[name][1]
    assert is_genuine(name, make(NOW_S - TOLERANCE_S))
    assert is_genuine(name, make(NOW_S + TOLERANCE_S))
    assert not is_genuine(name, make(NOW_S - TOLERANCE_S - 1))
    assert not is_genuine(name, make(NOW_S + TOLERANCE_S + 1))


@TIMED
def test_a_fresh_timestamp_on_an_old_signature_is_refused(name: str) -> None:
    old, new = SENDERS[name][1](NOW_S - 3600), SENDERS[name][1](NOW_S)
    for each in [each for each in old if old[each] != new[each] and len(old) > 1]:
        assert not is_genuine(name, {**old, each: new[each]})
    stamped = old.get("stripe-signature", "").replace(f"t={NOW_S - 3600}", f"t={NOW_S}")
    assert not is_genuine(name, {**old, "stripe-signature": stamped})


def test_the_published_examples_of_senders_are_accepted() -> None:
    example = {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    verify({"kind": "github"}, "It's a Secret to Everybody", Request("x", example, b"Hello, World!"), 0)
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
        b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
        b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    slack_example = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    verify({"kind": "slack"}, "8f742231b10e8888abcd99yyyzzz85a5", Request("x", slack_example, body), 1531420618_000)


def test_an_empty_secret_signs_nothing() -> None:
    signed = hmac.digest(b"", b"msg_1.%d." % NOW_S + BODY, "sha256")
    headers = {
        "webhook-id": "msg_1", "webhook-timestamp": str(NOW_S), "webhook-signature": "v1," + base64.b64encode(signed).decode(),
    }  # fmt: skip
    for secret in ("whsec_", "", "not base64!"):
        with pytest.raises(InvalidSignature):
            verify({"kind": "standard-webhooks"}, secret, Request("x", headers, BODY), NOW_S * 1000)


def test_the_body_of_an_event_need_not_be_json() -> None:
    signed = hmac.digest(b"shared", f"{NOW_S}.".encode() + b"no json", "sha256").hex()
    request = Request("x", {"stripe-signature": f"t={NOW_S},v1={signed}"}, b"no json")
    assert verify({"kind": "stripe"}, SHARED, request, NOW_S * 1000).delivery
