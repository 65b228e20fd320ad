"""Guessing credentials: API keys, sessions, one-time codes, invitations, previews, shares.

For each: its entropy, that near misses are refused like nonsense, and that answers do not reveal how near a guess was.
"""

import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx

from appliance.core import clock, ids
from appliance.core.errors import Gone, RateLimited
from appliance.documents.sharing import Shares
from appliance.tenants import invitations
from appliance.tenants.keys import make_key_text
from appliance.tenants.sign_in import CodeTarget, EmailCodes, email_codes, sessions
from appliance.testing.running import Running
from appliance.webapps.publishing import previews
from tests.redteam.attempts import Attempts, attempts
from tests.sites.test_cdn import upload
from tests.sites.test_webapps import deploy, new_app

HOUR = 3_600_000
BITS = 128


def near_misses(token: str) -> Iterator[tuple[str, str]]:
    """What somebody tries who knows all of a token but a little."""
    middle = len(token) // 2
    other = "A" if token[middle] != "A" else "B"
    yield "one character differs", token[:middle] + other + token[middle + 1 :]
    yield "the last differs", token[:-1] + ("A" if token[-1] != "A" else "Q")
    yield "the first differs", ("A" if token[0] != "A" else "B") + token[1:]
    yield "cut", token[:-1]
    yield "longer", token + "A"
    yield "twice", token + token
    yield "other letters", token.swapcase()
    yield "padded", token + "="
    yield "NUL behind", token + "\0"
    yield "space within", token[:middle] + " " + token[middle:]
    yield "backwards", token[::-1]
    yield "half", token[:middle]
    yield "like", "%" * len(token)
    yield "SQL", "' OR 1=1 --"
    yield "nothing", ""


def with_check(body: str) -> str:
    """A key's text with check digits that fit."""
    return body + ids.base62(zlib.crc32(body.encode()), 6)


def _guess_keys(running: Running, table: Attempts) -> None:
    keys = {make_key_text("live") for _ in range(500)}
    table.check("keys: 500 differ", len(keys) == 500)
    table.check("keys: enough to guess", 2**BITS < 62**30 and all(len(key) == 9 + 30 + 6 for key in keys))
    key, foreign = running.key("acme"), running.key("globex")
    body = key[:-6]
    guesses = {name: guess for name, guess in near_misses(key) if guess and guess.isprintable()}
    guesses |= {f"check digits fit: {name}": with_check(guess) for name, guess in near_misses(body) if guess.isprintable()}
    guesses |= {
        "another tenant's": foreign,
        "unknown": make_key_text("live"),
        "of another environment": with_check(f"gos_live_{body[9:]}"),
    }
    answers = {}
    with running.client("acme.localhost") as client:
        for name, guess in guesses.items():
            answer = client.get("/api/v1/tenant", headers={"X-API-Key": guess, "X-Request-Id": "same"})
            answers[name] = (answer.status_code, answer.content)
            table.check(f"keys: {name}", answer.status_code == 401, answer.text)
        table.check("keys: all answers are alike", len(set(answers.values())) == 1, answers)
        right = client.get("/api/v1/tenant", headers={"X-API-Key": key})
        table.check("keys: control", right.status_code == 200, right.text)


def _guess_sessions(running: Running, table: Attempts) -> None:
    sealer = running.services.sealer
    user = running.user("guessed-door@acme.test", "correct horse battery", "acme")
    other = running.user("other-guessed@acme.test", "correct horse battery", "acme")

    def find(token: str, tenant: str | None = "acme") -> Any:
        return sessions.find_session(sealer, token, tenant, lifetime_ms=HOUR, use=sessions.SessionUse("r"))

    token = sessions.create_session(sealer, user, "acme", lifetime_ms=HOUR)
    theirs = sessions.create_session(sealer, other, "acme", lifetime_ms=HOUR)
    sessions.create_session(sealer, user, None, lifetime_ms=HOUR, root="guessed")
    code = sessions.create_code(sealer, user, "acme", "enter", root="guessed")
    secret = token.partition(".")[0]
    table.check("sessions: enough to guess", len(secret) * 6 >= BITS and len(code) * 6 >= BITS, secret)
    for name, guess in near_misses(token):
        table.check(f"sessions: {name}", find(guess) is None)
    table.check("sessions: another's secret with this name", find(theirs.partition(".")[0] + token[len(secret) :]) is None)
    table.check("sessions: on the host of another tenant", find(token, "globex") is None)
    table.check("sessions: on the base host", find(token, None) is None)
    table.check("sessions: a code is none", find(code) is None)
    with running.client("acme.localhost") as client:
        for name, guess in near_misses(token):
            if guess.isprintable() and guess:
                answer = client.get("/console/", headers={"Cookie": f"__Host-gos={guess}"})
                table.check(f"console: {name}", answer.status_code == 303 and "/hand-over" in answer.headers["location"], answer)
    for name, guess in near_misses(code):
        table.check(f"codes: {name}", sessions.redeem_code(sealer, guess, "acme", "enter") is None)
    table.check("codes: for another tenant", sessions.redeem_code(sealer, code, "globex", "enter") is None)
    table.check("codes: a session is none", sessions.redeem_code(sealer, token, "acme", "enter") is None)
    redeemed = sessions.redeem_code(sealer, code, "acme", "enter")
    table.check("codes: control", redeemed is not None and redeemed.user_id == user)
    table.check("codes: a second time", sessions.redeem_code(sealer, code, "acme", "enter") is None)
    table.check("sessions: control", find(token) is not None)


def _guess_invitations(running: Running, table: Attempts) -> None:
    sealer = running.services.sealer
    spec = invitations.InvitationSpec("guessed-guest@acme.test", "viewer")
    _, token = invitations.invite(running.tenant("acme"), sealer, spec)
    table.check("invitations: enough to guess", len(token) * 6 >= BITS, token)
    for name, guess in near_misses(token):
        table.refused(f"invitations: {name}", lambda guess=guess: invitations.read_offer(sealer, guess), Gone)  # type: ignore[misc]
    table.check("invitations: control", invitations.read_offer(sealer, token).tenant_id == "acme")


def _guess_previews(running: Running, acme: httpx.Client, table: Attempts) -> None:
    new_app(acme, "guessed")
    for _ in range(2):
        deploy(acme, "guessed", {"index.html": b"<h1>draft</h1>"}, publish=False)
    scope, sealer = running.tenant("acme"), running.services.sealer
    token = previews.preview_version(scope, sealer, "guessed", 1).token
    expires, _, signature = token.partition(".")

    def opens(guess: str, number: int = 1, tenant: str = "acme") -> bool:
        return previews.expiry_of(running.tenant(tenant), sealer, "guessed", number, guess) is not None

    table.check("previews: enough to guess", len(signature) * 6 >= BITS, signature)
    for name, guess in near_misses(token):
        table.check(f"previews: {name}", not opens(guess))
    table.check("previews: a later end", not opens(f"{int(expires) + 1}.{signature}"))
    table.check("previews: another version", not opens(token, 2))
    table.check("previews: another tenant", not opens(token, 1, "globex"))
    table.check("previews: control", opens(token))


def _guess_shares(running: Running, acme: httpx.Client, table: Attempts) -> None:
    document = upload(acme, "guessed.txt", b"nobody guesses this")
    share = acme.post(f"/api/v1/documents/{document}/shares", json={}).raise_for_status().json()["data"]
    folder, _, token = urlsplit(share["url"]).path.rpartition("/")
    shares: Shares = running.services.documents.shares
    table.check("shares: enough to guess", len(token) * 6 >= BITS, token)
    for name, guess in near_misses(token):
        table.check(f"shares: {name}", shares.open_share(running.tenant("acme"), guess) is None)
    table.check("shares: at another tenant", shares.open_share(running.tenant("globex"), token) is None)
    with running.client("cdn--acme.content.localhost") as visitor:
        seen = {visitor.get(f"{folder}/{guess}").content for _, guess in near_misses(token) if guess.isalnum()}
        table.check("shares: near and far answer alike", len(seen | {visitor.get(f"{folder}/nonsense").content}) == 1, seen)
        table.check("shares: control", visitor.get(urlsplit(share["url"]).path).status_code == 200)


def _guess_email_codes(running: Running, table: Attempts) -> None:
    codes, door = (
        EmailCodes(running.services.sealer),
        CodeTarget(running.tenant("acme"), "webapp:guessed", "guessed--acme.content.localhost"),
    )
    code = codes.issue(door, "guessed@firma.example", "192.0.2.1", allowed=True)
    for number in range(email_codes.MAX_TRIES):
        wrong = f"{(int(code.code) + number + 1) % 10**8:08}"
        table.check(f"codes by e-mail: wrong number {number}", codes.check(door, code.id, wrong, "192.0.2.1").email == "")
    table.check("codes by e-mail: the right one too late", codes.check(door, code.id, code.code, "192.0.2.1").email == "")
    another = codes.issue(door, "guessed@firma.example", "192.0.2.1", allowed=True)
    for name, guess in near_misses(another.code) if another.code else ():
        if "".join(guess.split()) != another.code and len(table.names) % 2:  # five tries end it: half of them are enough
            table.check(f"codes by e-mail: {name}", codes.check(door, another.id, guess, "192.0.2.1").email == "")
    limited: list[str] = []
    for _ in range(email_codes.MAX_PER_NETWORK - 2):
        codes.issue(door, "guessed@firma.example", "192.0.2.1", allowed=True)
    for name, network in (("a sixth", 0), *((f"from network {number}", number) for number in range(1, 30))):
        try:
            codes.issue(door, "guessed@firma.example", f"192.0.2.{network + 1}", allowed=True)
        except RateLimited:
            limited.append(name)
    table.check("codes by e-mail: a sixth from one network", limited[0] == "a sixth", limited)
    most = email_codes.MAX_PER_ADDRESS - email_codes.RESERVED_FOR_PROVEN
    table.check("codes by e-mail: from many networks", len(limited) == 30 - (most - email_codes.MAX_PER_NETWORK), limited)
    email_codes.purge(clock.now_ms() + email_codes.RETENTION_MS)  # removes the codes, whose e-mails are never sent
    # What is left for known networks is counted too: whoever guesses may sit in one.
    chance = email_codes.MAX_TRIES * email_codes.MAX_PER_ADDRESS / 10**email_codes.DIGITS
    table.check("codes by e-mail: chance of an hour", chance < 1e-6, chance)


def test_no_credential_can_be_guessed(running: Running, acme: httpx.Client) -> None:
    with attempts(least=120) as table:
        _guess_keys(running, table)
        _guess_sessions(running, table)
        _guess_invitations(running, table)
        _guess_previews(running, acme, table)
        _guess_shares(running, acme, table)
        _guess_email_codes(running, table)
