"""Webhooks: deliveries that come again, late, altered, elsewhere, or all at once."""

import hmac
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from standardwebhooks import Webhook

from appliance.core import clock
from appliance.testing.running import Running
from tests.hooks.test_receive import SECRET, STANDARD, Builder, sign
from tests.redteam.attempts import attempts

GITHUB = {"kind": "github", "secret": "= secrets.orders_hook"}
STRIPE = {"kind": "stripe", "secret": "= secrets.orders_hook"}


def github(body: bytes, delivery: str) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex(), "x-github-delivery": delivery}


def stripe(body: bytes, moment: int) -> dict[str, str]:
    signature = hmac.digest(SECRET.encode(), f"{moment}.".encode() + body, "sha256").hex()
    return {"stripe-signature": f"t={moment},v1={signature}"}


def altered(body: str, good: dict[str, str]) -> dict[str, tuple[str, dict[str, str]]]:
    """Alterations of a delivery that somebody has read; each must be refused."""
    moment, signature = int(good["webhook-timestamp"]), good["webhook-signature"]
    plain = signature.partition(",")[2]
    by_nothing = Webhook(b"\0").sign("msg_1", datetime.fromtimestamp(moment, UTC), body)
    return {
        "another delivery id": (body, {**good, "webhook-id": "msg_2"}),
        "a later time": (body, {**good, "webhook-timestamp": str(moment + 1)}),
        "time with a sign": (body, {**good, "webhook-timestamp": f"+{moment}"}),
        "time with a space": (body, {**good, "webhook-timestamp": f"{moment} 1"}),
        "time in other digits": (body, {**good, "webhook-timestamp": "".join(f"%D9%A{digit}" for digit in str(moment))}),
        "no time": (body, {name: value for name, value in good.items() if name != "webhook-timestamp"}),
        "no id": (body, {name: value for name, value in good.items() if name != "webhook-id"}),
        "empty id": (body, {**good, "webhook-id": ""}),
        "no signature": (body, {name: value for name, value in good.items() if name != "webhook-signature"}),
        "signature of version 2": (body, {**good, "webhook-signature": f"v2,{plain}"}),
        "signature without version": (body, {**good, "webhook-signature": plain}),
        "empty signature": (body, {**good, "webhook-signature": "v1,"}),
        "signature cut": (body, {**good, "webhook-signature": signature[:-4]}),
        "signature behind twenty": (body, {**good, "webhook-signature": "v1,AAAA " * 20 + signature}),
        "space behind the body": (body + " ", good),
        "mark before the body": ("\ufeff" + body, good),
        "other body": (body.replace("7", "8"), good),
        "id moves into the body": (f"{moment}.{body}", {**good, "webhook-id": "msg_1"}),
        "empty body": ("", good),
        "secret as the signature": (body, {**good, "webhook-signature": f"v1,{SECRET.removeprefix('whsec_')}"}),
        "signed by an empty secret": (body, {**good, "webhook-signature": by_nothing}),
        "five minutes and more ago": (body, sign(body, ago=timedelta(seconds=310))),
        "five minutes and more ahead": (body, sign(body, ago=-timedelta(seconds=320))),
        "an hour ago": (body, sign(body, ago=timedelta(hours=1))),
    }


def test_a_delivery_counts_once_and_only_as_it_was_signed(running: Running, acme: httpx.Client, globex: httpx.Client) -> None:
    builder, other = Builder(acme), Builder(globex)
    path = builder.publish(STANDARD)
    twin = builder.publish(STANDARD)
    foreign = other.publish(STANDARD)
    body = json.dumps({"order": 7})
    good = sign(body)
    with running.client("acme.localhost") as sender, running.client("globex.localhost") as stranger, attempts(least=30) as table:

        def send(client: httpx.Client, where: str, content: Any, headers: dict[str, str]) -> httpx.Response:
            return client.post(f"/hooks/{where}", content=content, headers=headers)

        for name, (content, headers) in altered(body, good).items():
            answer = send(sender, path, content.encode(), headers)
            table.check(name, answer.status_code == 401, answer.text)
        table.check("nothing has run", builder.executions(path) == [])
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: send(sender, path, body, good), range(20)))
        ids = {answer.json()["data"]["execution_id"] for answer in answers}
        table.check("twenty at once", ({answer.status_code for answer in answers}, len(ids)) == ({202}, 1), ids)
        table.check("signed anew under the same id", send(sender, path, body, sign(body)).json()["data"]["execution_id"] in ids)
        table.check("path of another tenant on this host", send(sender, foreign, body, good).status_code == 404)
        table.check("path of this tenant on another host", send(stranger, path, body, good).status_code == 404)
        table.check("path in capitals", send(sender, path.upper(), body, good).status_code == 404)
        table.check("one execution", len(builder.executions(path)) == 1)
        # The same sender may be subscribed twice: another trigger of the same secret is another subscription.
        table.check("control: another subscription runs on its own", send(sender, twin, body, good).status_code == 202)
        _attack_content(builder, sender, table.check)
        doubled = '{"order": 1, "order": 2}'
        table.check("a member twice", send(sender, path, doubled, sign(doubled, "msg_3")).status_code == 400)
        table.check("still one execution", len(builder.executions(path)) == 1)
        table.check("nothing at the other tenant", other.executions(foreign) == [])


def _attack_content(builder: Builder, sender: httpx.Client, check: Any) -> None:
    """Schemes whose signature has no delivery id, or no time."""
    path, body = builder.publish(GITHUB), b'{"action": "opened"}'
    first = sender.post(f"/hooks/{path}", content=body, headers=github(body, "one")).status_code
    again = sender.post(f"/hooks/{path}", content=body, headers=github(body, "two")).status_code
    none = {name: value for name, value in github(body, "").items() if name != "x-github-delivery"}
    check("the content under another id", (first, again) == (202, 401), (first, again))
    check("the content under no id", sender.post(f"/hooks/{path}", content=body, headers=none).status_code == 401)
    sha1 = {"x-hub-signature": "sha1=" + hmac.digest(SECRET.encode(), body, "sha1").hex(), "x-github-delivery": "three"}
    check("the old hash", sender.post(f"/hooks/{path}", content=body, headers=sha1).status_code == 401)
    check("one execution of the content", len(builder.executions(path)) == 1)
    path, body, now = builder.publish(STRIPE), b'{"id": "evt_1"}', clock.now_ms() // 1000
    answers = [sender.post(f"/hooks/{path}", content=body, headers=stripe(body, now + offset)) for offset in (0, 1, 2)]
    ids = {answer.json()["data"]["execution_id"] for answer in answers}
    check("an event sent again later", len(ids) == 1, ids)
    two = {"stripe-signature": f"t={now - 900},{stripe(body, now)['stripe-signature']}"}
    check("two times, the old one first", sender.post(f"/hooks/{path}", content=body, headers=two).status_code == 401)
