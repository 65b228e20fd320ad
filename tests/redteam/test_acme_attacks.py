"""ACME: strangers who ask for proofs, and an authority that lies."""

import socket
from collections.abc import Callable
from typing import Any

from appliance.core.database import db
from tests.redteam.attempts import Attempts, attempts
from tests.sites.acme_server import Answer
from tests.sites.live_server import PATIENCE
from tests.sites.test_acme import ACME, HOST, World, listening, world

__all__ = ["listening", "world"]  # fixtures
TOKEN, KEY = "t" * 20, "t.the-key-authorisation"
PATH = "/.well-known/acme-challenge/"
WRONG: dict[str, tuple[str, str, str]] = {
    "another host": ("GET", PATH + TOKEN, "other.example.com"),
    "a host below": ("GET", PATH + TOKEN, f"x.{HOST}"),
    "a host above": ("GET", PATH + TOKEN, "example.com"),
    "host with a user": ("GET", PATH + TOKEN, f"user@{HOST}"),
    "two hosts in one": ("GET", PATH + TOKEN, f"{HOST},other.example.com"),
    "absolute target elsewhere": ("GET", f"http://other.example.com{PATH}{TOKEN}", HOST),
    "another token": ("GET", PATH + "u" * 20, HOST),
    "token cut": ("GET", PATH + TOKEN[:-1], HOST),
    "token longer": ("GET", PATH + TOKEN + "t", HOST),
    "token in capitals": ("GET", PATH + TOKEN.upper(), HOST),
    "token like": ("GET", PATH + "%25" * 16, HOST),
    "token of SQL": ("GET", PATH + "'%20OR%201=1%20--%20xxxxxxx", HOST),
    "no token": ("GET", PATH, HOST),
    "a very long token": ("GET", PATH + "t" * 5000, HOST),
    "a slash behind": ("GET", PATH + TOKEN + "/", HOST),
    "a segment before": ("GET", PATH + "x/" + TOKEN, HOST),
    "dots": ("GET", PATH + "x/../" + TOKEN, HOST),
    "dots in code": ("GET", PATH + "%2e%2e%2f%2e%2e%2fetc%2fpasswd", HOST),
    "doubled slash": ("GET", PATH + "/" + TOKEN, HOST),
    "NUL behind": ("GET", PATH + TOKEN + "%00", HOST),
    "line behind": ("GET", PATH + TOKEN + "%0d%0aX-Other:1", HOST),
}


def ask(port: int, method: str, target: str, host: str) -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as line:
        line.sendall(head.encode("latin1"))
        received = b""
        while piece := line.recv(1 << 16):
            received += piece
    return received


def _ask_for_proofs(world: World, table: Attempts) -> None:
    write = "INSERT INTO acme_challenge (token, host, order_host, answer) VALUES (?, ?, ?, ?)"
    db.write(lambda: db.execute(write, (TOKEN, HOST, HOST, KEY)))
    for name, (method, target, host) in WRONG.items():
        answer = ask(world.authority.port, method, target, host)
        table.check(name, KEY.encode() not in answer and answer[9:12] in (b"404", b"400"), answer)
    table.check("control: the right question", KEY.encode() in ask(world.authority.port, "GET", PATH + TOKEN, HOST))


def _authorization(**changes: Any) -> Callable[[World], None]:
    """The authority alters its authorization of a name."""

    def lie(world: World) -> None:
        honest = world.authority.authorization

        def authorization(number: int) -> Answer:
            status, headers, body = honest(number)
            for challenge in body["challenges"]:
                challenge |= {name: value for name, value in changes.items() if name != "identifier"}
            return status, headers, body | {name: value for name, value in changes.items() if name == "identifier"}

        world.authority.authorization = authorization  # type: ignore[method-assign]

    return lie


def _chain(text: str) -> Callable[[World], None]:
    def lie(world: World) -> None:
        honest = world.authority.finalize

        def finalize(number: int, payload: dict[str, Any]) -> Answer:
            answer = honest(number, payload)
            world.authority.orders[number].chain = text
            return answer

        world.authority.finalize = finalize  # type: ignore[method-assign]

    return lie


def _of_other_host(world: World) -> None:
    world.authority.finalize = lambda number, payload, honest=world.authority.finalize: _renamed(world, honest, number, payload)  # type: ignore[method-assign, misc]


def _renamed(world: World, honest: Any, number: int, payload: Any) -> Answer:
    order = world.authority.orders[number]
    answer: Answer = honest(number, payload)
    order.chain = world.authority.signer.pair("evil.example.com")[0]
    return answer


def _days(first: float, last: float) -> Callable[[World], None]:
    def lie(world: World) -> None:
        world.authority.days = (first, last)

    return lie


def _stay_honest(world: World) -> None:
    """The control: an unaltered authority issues a certificate."""


LIES: dict[str, Callable[[World], None]] = {
    "certificate of another host and key": _of_other_host, "expired": _days(-90, -1), "no chain": _chain(""),
    "no PEM": _chain("<html>welcome</html>"), "much of nothing": _chain("A" * 3_000_000),
    "a key for a chain": _chain("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
    "a broken certificate": _chain("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
    "token leads elsewhere": _authorization(token="../../../etc/passwd"), "token with a line": _authorization(token="a\r\nb" * 8),
    "a very long token": _authorization(token="t" * 20_000), "an empty token": _authorization(token=""),
    "the challenge of another kind": _authorization(type="evil-01"),
    "the name of another": _authorization(identifier={"type": "dns", "value": "evil.example.com"}),
}  # fmt: skip


def test_neither_strangers_nor_a_lying_authority_yield_a_certificate(world: World) -> None:
    honest = dict(vars(world.authority))
    with attempts(least=30) as table:
        _ask_for_proofs(world, table)
        for name, lie in {**LIES, "control": _stay_honest}.items():
            for of in ("certificate", "certificate_order", "acme_account", "acme_challenge"):
                db.write(lambda of=of: db.execute(f"DELETE FROM {of}"))  # type: ignore[misc]  # noqa: S608
            vars(world.authority).clear()
            vars(world.authority).update(honest)
            lie(world)
            status = world.run_rounds(world.issuer())
            certificate = world.certificates.find(ACME, HOST)
            is_issued = certificate is not None or status.state == "active"
            table.check(f"authority: {name}", is_issued == (name == "control"), (status, certificate))
            table.check(
                f"authority: {name}: nothing else is proven", not db.rows("SELECT 1 FROM acme_challenge WHERE host <> ?", (HOST,))
            )
