"""Surface: an approval that is used for something else which looks the same: Unicode forms, numbers, names, other callers."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from appliance.api import load_routes
from appliance.api.frame.routing import Json
from appliance.connectors.testing import LoopbackServer
from appliance.core import clock
from appliance.core.database import db
from appliance.governance.approvals import Decision
from tests.api.resources import PREFIX, Resources, fresh
from tests.api.test_approvals import decide
from tests.redteam.attempts import Attempts, attempts

NFC, NFD = "caf\u00e9", "cafe\u0301"
MEDIA = {"Content-Type": "application/json"}
MEMBERS = {
    "name": json.dumps(NFC),
    "amount": "9007199254740993",
    "rate": "1.0",
    "zero": "-0.0",
    "flag": "true",
    "note": '"pay it"',
    "lines": "[1, 2]",
    "deep": '{"a": {"b": null}}',
}
"""What a person has approved, as it stands on the wire."""

REPLACED = {
    "NFD for NFC": ("name", json.dumps(NFD)),
    "NFD, not escaped": ("name", f'"{NFD}"'),
    "a letter that looks alike": ("name", '"c\u0430f\u00e9"'),
    "full width": ("name", '"\uff43af\u00e9"'),
    "a zero-width space": ("name", '"caf\u00e9\u200b"'),
    "a NUL": ("name", '"caf\u00e9\\u0000"'),
    "a byte-order mark": ("name", '"\ufeffcaf\u00e9"'),
    "right to left": ("name", '"\u202ecaf\u00e9"'),
    "half a surrogate": ("name", '"caf\u00e9\\ud83d"'),
    "the next number below": ("amount", "9007199254740992"),
    "the next number above": ("amount", "9007199254740994"),
    "the number as a float": ("amount", "9007199254740993.0"),
    "the number as a text": ("amount", '"9007199254740993"'),
    "the number of the canonical text": ("amount", '"gos:int:20000000000001"'),
    "ten times as much": ("amount", "90071992547409930"),
    "with an exponent": ("amount", "9.007199254740993e15"),
    "beyond all numbers": ("amount", "1e400"),
    "minus": ("amount", "-9007199254740993"),
    "an integer for a float": ("rate", "1"),
    "the next float": ("rate", "1.0000000000000002"),
    "a float's text": ("rate", '"1.0"'),
    "the tag of a float": ("rate", '"gos:float:1.0"'),
    "true for one": ("rate", "true"),
    "zero without its sign": ("zero", "0.0"),
    "zero as an integer": ("zero", "0"),
    "minus zero as an integer": ("zero", "-0"),
    "one for true": ("flag", "1"),
    "text for true": ("flag", '"true"'),
    "null for true": ("flag", "null"),
    "a space at the end": ("note", '"pay it "'),
    "a no-break space": ("note", '"pay\u00a0it"'),
    "a new line": ("note", '"pay it\\n"'),
    "another order": ("lines", "[2, 1]"),
    "a line more": ("lines", "[1, 2, null]"),
    "lines as an object": ("lines", '{"0": 1, "1": 2}'),
    "a float in a list": ("lines", "[1.0, 2]"),
    "lines in a list": ("lines", "[[1, 2]]"),
    "false deep inside": ("deep", '{"a": {"b": false}}'),
    "nothing deep inside": ("deep", '{"a": {}}'),
    "deeper than is read": ("deep", "[" * 80 + "]" * 80),
}

WHOLE = {
    "a member more": '{{{body}, "extra": null}}',
    "a name in NFD": '{{{body}, "nam\u0065\u0301": 1}}',
    "a name in capitals": '{{{body}, "Amount": 1}}',
    "a name with a space": '{{{body}, "amount ": 1}}',
    "a member twice, the last another": '{{{body}, "amount": 1}}',
    "an empty name": '{{{body}, "": 1}}',
}


def body_of(members: dict[str, str]) -> str:
    return ", ".join(f'"{name}": {value}' for name, value in members.items())


@pytest.fixture
def bank() -> Iterator[LoopbackServer]:
    """A foreign system that takes orders and remembers them."""
    server = LoopbackServer()
    server.answer("/pay", 200, b"{}", Content_Type="application/json")
    yield server
    server.close()


class Payment:
    """One approved action and everything that is sent with its approval."""

    def __init__(self, ours: Resources, bank: LoopbackServer) -> None:
        self.ours, self.slug = ours, fresh("bank")
        ours.ask("POST", "/integrations", {"slug": self.slug, "connector": "http", "settings": {"base_url": bank.url}})
        self.approval = self.request()
        decide(ours, self.approval, Decision("approve"))

    def request(self) -> str:
        params = f'{{"url": "/pay", "json": {{{body_of(MEMBERS)}}}}}'
        arguments = f'{{"integration": "{self.slug}", "operation": "post", "params": {params}}}'
        action = f'{{"tool": "execute_tenant_integration", "arguments": {arguments}}}'
        response = self.send("/approvals", f'{{"kind": "approval", "action": {action}}}')
        assert response.status_code == 201, response.text
        return str(response.json()["data"]["id"])

    def send(self, path: str, text: str, client: httpx.Client | None = None) -> httpx.Response:
        return (client or self.ours.client).post(PREFIX + path, content=text.encode(), headers=MEDIA)

    def pay(self, body: str, client: httpx.Client | None = None, **more: str) -> httpx.Response:
        fields = {"action": "post", "url": "/pay", "approval": self.approval, "slug": self.slug} | more
        params = f'{{"url": "{fields["url"]}", "json": {body}}}'
        text = f'{{"action": "{fields["action"]}", "approval_id": "{fields["approval"]}", "input": {params}}}'
        return self.send(f"/integrations/{fields['slug']}/execute", text, client)


def test_an_approval_is_valid_for_the_approved_action_only(ours: Resources, theirs: Resources, bank: LoopbackServer) -> None:
    payment, exact = Payment(ours, bank), f"{{{body_of(MEMBERS)}}}"
    with attempts() as table:
        for name, (member, value) in REPLACED.items():
            refuse(table, name, payment.pay(f"{{{body_of(MEMBERS | {member: value})}}}"))
        for name, form in WHOLE.items():
            refuse(table, name, payment.pay(form.format(body=body_of(MEMBERS))))
        for missing in MEMBERS:
            refuse(table, f"without {missing}", payment.pay(f"{{{body_of({k: v for k, v in MEMBERS.items() if k != missing})}}}"))
        for name, url in {
            "a query": "/pay?x=1",
            "an escaped letter": "/p%61y",
            "a slash more": "/pay/",
            "a fragment": "/pay#x",
        }.items():
            refuse(table, name, payment.pay(exact, url=url))
        refuse(table, "another action", payment.pay(exact, action="put"))
        refuse(table, "an approval that is pending", payment.pay(exact, approval=payment.request()))
        with ours.running.api("acme") as another:
            refuse(table, "another key of the tenant", payment.pay(exact, another))
        clone = Payment(ours, bank)
        refuse(table, "a clone of the integration", payment.pay(exact, slug=clone.slug))
        foreign = Payment(theirs, bank)
        refuse(table, "another tenant's approval", payment.pay(exact, approval=foreign.approval))
        refuse(table, "used by another tenant", foreign.pay(exact, approval=payment.approval))
        table.check("nothing has arrived", bank.received == [], bank.received)
        _spend(table, payment, bank)
        db.write(lambda: db.execute("UPDATE approval SET expires_at = ? WHERE id = ?", (clock.now_ms() - 1, clone.approval)))
        refuse(table, "an expired one", clone.pay(exact))
        table.check("nothing more has arrived", len(bank.received) == 1, bank.received)


def refuse(table: Attempts, name: str, answer: httpx.Response) -> None:
    """Refused with a code, not with an accident."""
    table.check(name, 400 <= answer.status_code < 500, (answer.status_code, answer.text))


def _spend(table: Attempts, payment: Payment, bank: LoopbackServer) -> None:
    """The control: members in another order and escaped letters are the same action, which is then good once of twenty times."""
    reordered = dict(reversed(MEMBERS.items())) | {"name": '"caf\\u00e9"'}
    key = payment.ours.client.headers["x-api-key"]

    def pay(_: int) -> int:
        with payment.ours.running.client("acme.localhost", {"X-API-Key": key}) as client:
            return payment.pay(f"{{{body_of(reordered)}}}", client).status_code

    with ThreadPoolExecutor(20) as threads:
        answers = Counter(threads.map(pay, range(20)))
    table.check("twenty at once", answers[200] == 1 and set(answers) <= {200, 403, 429} and len(bank.received) == 1, answers)
    paid = bank.received[0].body.decode()
    compact = paid.replace(" ", "")
    table.check("what was approved has arrived", '"amount":9007199254740993' in compact and '"zero":-0.0' in compact, paid)
    refuse(table, "once more", payment.pay(f"{{{body_of(MEMBERS)}}}"))


INFINITE = ("1e400", "-1E+0400", "9" * 280 + "e50", "9" * 310 + ".5")
JSON_ROUTES = [
    route
    for route in load_routes()
    if route.body is not None and not (isinstance(route.body, Json) and route.body.kind not in ("object", "document"))
]


def test_infinite_numbers_are_refused_on_every_route(ours: Resources) -> None:
    """Read as infinity it was answered 500 where a body is stored as it comes; the control is the largest number there is."""
    with attempts() as table:
        for route in JSON_ROUTES:
            address = PREFIX + route.path.format(**dict.fromkeys(route.parameters, "x"))
            for number in INFINITE:
                answer = ours.client.request(route.method, address, content=f'{{"a": [{{"b": {number}}}]}}'.encode(), headers=MEDIA)
                name = f"{number[:8]}…{number[-3:]} to {route.method} {route.path}"
                table.check(name, (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json"), answer.text)
    process = ours.once("process", ours.process)
    largest = ours.client.post(
        f"{PREFIX}/processes/{process}/execute?wait=30", content=b'{"a": 1.7e308, "b": "1e400"}', headers=MEDIA
    )
    assert largest.status_code == 200, largest.text


@pytest.mark.parametrize("number", ["1e400", "-1e999", "1.5e+309"])
def test_a_definition_in_yaml_holds_no_infinite_number(ours: Resources, number: str) -> None:
    name = fresh("yaml")
    text = f"id: {name}\nsteps:\n  - {{id: s, rule: {{expression: '= input'}}, input: {{x: {number}}}}}\n"
    refused = ours.client.put(f"{PREFIX}/processes/{name}", content=text.encode(), headers={"Content-Type": "application/yaml"})
    assert (refused.status_code, "line 3" in refused.text) == (400, True), refused.text
    quoted = text.replace(number, f"'{number}'").encode()
    assert ours.client.put(f"{PREFIX}/processes/{name}", content=quoted, headers={"Content-Type": "application/yaml"}).is_success
