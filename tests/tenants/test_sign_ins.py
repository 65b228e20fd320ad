"""Sign-ins are listed with what they were made with and last used from, and ended one by one or all together."""

from collections.abc import Iterator

import pytest

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import people
from appliance.tenants.sign_in import Client, read_client, sessions
from tests.agents.world import wait_until

HOUR = 3_600_000
ANN, BOB, PASSWORD = "ann@example.com", "bob@example.com", "a long enough password"
FIREFOX = Client("Firefox", "Linux", "192.0.2.1")
MAC, IPHONE = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) ", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) "
KHTML = "AppleWebKit/537.36 (KHTML, like Gecko) "
CHROME = f"{KHTML}Chrome/142.0.0.0 Safari/537.36"
AGENTS = {
    "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0": "Firefox on Linux",
    f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {CHROME} Edg/142.0": "Edge on Windows",
    f"{MAC}{KHTML}Version/26.0 Safari/605.1.15": "Safari on macOS",
    f"{MAC}{CHROME}": "Chrome on macOS",
    f"{IPHONE}{KHTML}Version/18.1 Mobile Safari/604.1": "Safari on iOS",
    f"{IPHONE}{KHTML}CriOS/142.0 Safari/604.1": "Chrome on iOS",
    f"Mozilla/5.0 (Linux; Android 10; K) {KHTML}SamsungBrowser/28.0 Chrome/130.0 Safari/537.36": "Samsung Internet on Android",
    f"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) {CHROME}": "Chrome on ChromeOS",
    "<script>alert(1)</script>": " on ",
    "": " on ",
    "x" * 600 + "Firefox/1.0 Linux": " on ",
}


@pytest.mark.parametrize(("header", "name"), AGENTS.items(), ids=[str(number) for number in range(len(AGENTS))])
def test_a_browser_is_described_by_known_names_only(header: str, name: str) -> None:
    client = read_client(header, "192.0.2.1")
    assert (f"{client.browser} on {client.system}", client.address) == (name, "192.0.2.1")


@pytest.fixture
def ann(one: TenantScope, two: TenantScope) -> str:
    user_id = people.create_user(ANN, PASSWORD).id
    for scope in (one, two):
        people.add_member(scope, ANN, "owner")
    return str(user_id)


@pytest.fixture
def moved() -> Iterator[None]:
    """The clock, moved by six minutes."""
    clock.move(6 * 60_000)
    yield
    clock.move(-6 * 60_000)


def open_session(sealer: Sealer, user_id: str, tenant: str | None, root: str, client: Client = FIREFOX) -> str:
    """The token of a session; one in a tenant follows from one on the base host."""
    if tenant is None:
        return sessions.begin_sign_in(sealer, user_id, root=root, lifetime_ms=HOUR, client=client)
    code = sessions.create_code(sealer, user_id, tenant, "enter", root=root)
    token = sessions.enter(sealer, code, tenant, lifetime_ms=HOUR, client=client)
    assert token is not None
    return token


def use(sealer: Sealer, token: str, tenant: str | None, address: str = "") -> bool:
    return sessions.find_session(sealer, token, tenant, lifetime_ms=HOUR, use=sessions.SessionUse(address=address)) is not None


def was_used_now(sealer: Sealer, token: str) -> bool:
    """Whether the use of a session is stored, which is written beside the answer."""
    ((used_at,),) = db.rows("SELECT used_at FROM session WHERE digest = ?", (sealer.digest(token.encode()),))
    return bool(used_at > clock.now_ms() - sessions.USED_UPDATE_MS)


def test_sessions_of_one_sign_in_are_one_row(ann: str, sealer: Sealer) -> None:
    base = open_session(sealer, ann, None, "r")
    for tenant in ("two", "one"):
        open_session(sealer, ann, tenant, "r", Client("Firefox", "Linux", "192.0.2.9"))
    open_session(sealer, ann, None, "other", Client())
    sessions.create_code(sealer, ann, "one", "enter", root="r")
    listed = {each.tenants: each for each in sessions.list_sign_ins(sealer, ann, base)}
    mine, other = listed["one", "two"], listed[()]
    assert (mine.client, mine.is_this, other.client, other.is_this) == (FIREFOX, True, Client(), False)
    assert "r" not in (mine.id, other.id)
    assert len({mine.id, other.id}) == 2


def test_the_last_use_and_its_address_are_written_at_most_every_five_minutes(ann: str, sealer: Sealer, moved: None) -> None:
    open_session(sealer, ann, None, "r")
    token = open_session(sealer, ann, "one", "r")
    clock.move(-5 * 60_000)
    try:
        assert use(sealer, token, "one", "198.51.100.7")
        db.write(lambda: None)  # on one writer, after what the use has submitted
        (early,) = sessions.list_sign_ins(sealer, ann, token)
        assert early.used_address == "192.0.2.1"
    finally:
        clock.move(5 * 60_000)
    clock.move(5 * 60_000 + 1)
    try:
        assert use(sealer, token, "one", "198.51.100.7")
        wait_until(lambda: sessions.list_sign_ins(sealer, ann, token)[0].used_address == "198.51.100.7")
        (late,) = sessions.list_sign_ins(sealer, ann, token)
        assert late.client.address == "192.0.2.1"
        assert late.used_at >= late.created_at + sessions.USED_UPDATE_MS
    finally:
        clock.move(-5 * 60_000 - 1)


def test_one_sign_in_ends_on_every_host_and_others_stay(one: TenantScope, ann: str, sealer: Sealer) -> None:
    people.create_user(BOB, PASSWORD)
    bob = people.find_user(BOB).id
    theirs = open_session(sealer, bob, None, "r")
    here, there = open_session(sealer, ann, None, "r"), open_session(sealer, ann, "one", "r")
    elsewhere = open_session(sealer, ann, None, "o")
    chosen = next(each.id for each in sessions.list_sign_ins(sealer, ann, here) if each.is_this)
    sessions.close_one_sign_in(one, sealer, bob, chosen)  # nobody ends what is somebody else's
    assert use(sealer, here, None)
    for _ in range(2):
        sessions.close_one_sign_in(one, sealer, ann, chosen)
    used = [use(sealer, token, tenant) for token, tenant in ((here, None), (there, "one"), (elsewhere, None), (theirs, None))]
    assert used == [False, False, True, True]
    assert actions(one).count("session.end") == 1


def test_all_sessions_end_together(one: TenantScope, ann: str, sealer: Sealer) -> None:
    tokens = [open_session(sealer, ann, None, "r"), open_session(sealer, ann, "one", "r"), open_session(sealer, ann, None, "o")]
    assert sessions.close_all_sessions(one, ann) == 3
    assert [use(sealer, token, tenant) for token, tenant in zip(tokens, (None, "one", None), strict=True)] == [False] * 3
    assert actions(one)[0] == "session.end_all"


def actions(scope: TenantScope) -> list[str]:
    return [str(each.action) for each in audit.list_entries(scope, audit.AuditFilter(), PageRequest(100)).items]


def test_a_sign_in_ends_after_its_longest_time_however_it_is_used(ann: str, sealer: Sealer) -> None:
    base = open_session(sealer, ann, None, "root-1")
    moved = 0
    later = ""
    try:
        while use(sealer, base, None) and moved <= sessions.LONGEST_MS:
            assert not later or use(sealer, later, "one")
            db.write(lambda: None)  # on one writer, after what the use has submitted
            wait_until(lambda: was_used_now(sealer, base))
            clock.move(HOUR // 2)
            moved += HOUR // 2
            if moved == sessions.LONGEST_MS - HOUR:
                later = open_session(sealer, ann, "one", "root-1")  # on another host, of the same sign-in
        assert moved == sessions.LONGEST_MS
        assert not use(sealer, later, "one")
        assert use(sealer, open_session(sealer, ann, None, "root-2"), None)
    finally:
        clock.move(-moved)
