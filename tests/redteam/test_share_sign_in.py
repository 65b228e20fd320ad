"""Guesses of passwords keep nobody from signing in: not by locking an account, not by using up what checks passwords."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from urllib.parse import urlsplit

import httpx
import pytest

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ApplianceError, Overloaded, RateLimited
from appliance.tenants import people
from appliance.tenants.sign_in import MAX_WAITING, Attempt, PasswordChecks, SignInFailed, devices
from appliance.tenants.sign_in.counts import MemoryCounts
from appliance.tenants.sign_in.password_checks import MAX_WAITING_PER_NETWORK
from appliance.testing.running import Running
from tests.console.browser import Browser

PASSWORD = "correct horse battery staple"
SEALER = Sealer(b"k" * 32)


@pytest.fixture
def checks() -> Iterator[PasswordChecks]:
    password_checks = PasswordChecks()
    yield password_checks
    password_checks.stop()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let so many seconds pass for whoever counts attempts."""
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


def wrong() -> str:
    raise SignInFailed("the login or the password is wrong")


def guess(checks: PasswordChecks, attempt: Attempt, work: Callable[[], str] = wrong) -> str:
    """What became of an attempt: `wrong`, `right`, or how many seconds it has to wait."""
    try:
        checks.submit(attempt, work).result()
    except SignInFailed:
        return "wrong"
    except (RateLimited, Overloaded) as error:
        return f"{error.status} {error.headers['Retry-After']}"
    return "right"


def test_guesses_at_one_login_from_one_address_wait_longer_and_longer(
    checks: PasswordChecks, later: Callable[[float], None]
) -> None:
    mallory = Attempt("owner@acme.test", "192.0.2.1")
    assert [guess(checks, mallory) for _ in range(7)] == ["wrong"] * 5 + ["429 1", "429 1"]
    waits = []
    for _ in range(5):
        later(400)
        assert guess(checks, mallory) == "wrong"
        waits.append(int(guess(checks, mallory).split()[1]))
    assert waits == [2, 4, 8, 16, 32]
    assert guess(checks, Attempt("owner@acme.test", "192.0.2.2"), lambda: "hello") == "right", "the owner sits elsewhere"


def test_known_and_unknown_logins_are_counted_alike(checks: PasswordChecks, later: Callable[[float], None]) -> None:
    rows = [
        [guess(checks, Attempt(login, f"192.0.2.{number}")) for _ in range(8)]
        for number, login in enumerate(["owner@acme.test", "nobody-at-all@acme.test"])
    ]
    assert rows[0] == rows[1]


def test_one_address_goes_through_few_logins(checks: PasswordChecks, later: Callable[[float], None]) -> None:
    outcomes = [guess(checks, Attempt(f"guess-{number}@acme.test", "2001:db8::1")) for number in range(60)]
    assert outcomes == ["wrong"] * 20 + ["429 1"] * 40
    assert guess(checks, Attempt("other@acme.test", "2001:db8::ffff")) == "429 1", "one /64 is one client"
    assert guess(checks, Attempt("other@acme.test", "2001:db8:0:1::1")) == "wrong"


def test_a_right_password_forgives_an_address(checks: PasswordChecks, later: Callable[[float], None]) -> None:
    for number in range(15):
        guess(checks, Attempt(f"clumsy-{number}@acme.test", "192.0.2.1"))
    assert guess(checks, Attempt("owner@acme.test", "192.0.2.1"), lambda: "hello") == "right"
    assert [guess(checks, Attempt(f"again-{number}@acme.test", "192.0.2.1")) for number in range(15)] == ["wrong"] * 15


@pytest.mark.parametrize("known_by", ["cookie", "address"])
def test_guesses_from_everywhere_keep_no_owner_out(
    checks: PasswordChecks, later: Callable[[float], None], known_by: str
) -> None:
    home = Attempt("owner@acme.test", "198.51.100.1")
    assert guess(checks, home, lambda: "hello") == "right"
    for number in range(300):
        guess(checks, Attempt("owner@acme.test", f"10.1.{number // 250}.{number % 250}"))
    owner = Attempt("owner@acme.test", "203.0.113.9", "device") if known_by == "cookie" else home
    assert [guess(checks, owner) for _ in range(9)] == ["wrong"] * 9, "typing it wrongly a few times is no guessing"
    assert guess(checks, owner, lambda: "hello") == "right"


def test_a_flood_of_checks_leaves_places_to_those_who_come_rarely(checks: PasswordChecks) -> None:
    free = threading.Event()

    def slow() -> str:
        free.wait()
        return wrong()

    def submit(attempt: Attempt) -> bool:
        try:
            running.append(checks.submit(attempt, slow))
        except ApplianceError:
            return False
        return True

    running: list[object] = []
    try:
        assert guess_once(checks, [f"10.2.0.{number}" for number in range(60)]) == 60
        one_address = [submit(Attempt(f"a-{number}@acme.test", "192.0.2.7")) for number in range(60)]
        assert sum(one_address) == MAX_WAITING_PER_NETWORK
        repeating = [submit(Attempt(f"b-{number}@acme.test", f"10.2.0.{number}")) for number in range(60)]
        assert sum(repeating) == MAX_WAITING // 2 - MAX_WAITING_PER_NETWORK, (
            "those who have guessed wrongly have half of the places"
        )
        newcomers = [submit(Attempt(f"c-{number}@acme.test", f"10.3.0.{number}")) for number in range(60)]
        assert sum(newcomers) == MAX_WAITING // 2
        assert guess(checks, Attempt("owner@acme.test", "10.4.0.1", "device"), lambda: "hello") == "right", "a thread of its own"
    finally:
        free.set()
        wait(running)  # type: ignore[arg-type]


def test_a_rejected_attempt_does_not_count_as_a_guess(checks: PasswordChecks) -> None:
    free = threading.Event()
    running: list[Future[str]] = []

    def slow() -> str:
        free.wait()
        return wrong()

    owner = Attempt("owner@acme.test", "192.0.2.1")
    try:
        running += [checks.submit(Attempt("x@acme.test", f"10.7.0.{number}"), slow) for number in range(MAX_WAITING)]
        assert [guess(checks, owner) for _ in range(30)] == ["503 5"] * 30
    finally:
        free.set()
        wait(running)
    assert guess(checks, owner, lambda: "hello") == "right"


def test_signing_in_does_not_reset_the_count_of_guesses_at_others(
    checks: PasswordChecks, later: Callable[[float], None]
) -> None:
    mallory = Attempt("mallory@acme.test", "192.0.2.1")
    assert guess(checks, mallory, lambda: "hello") == "right"
    outcomes = []
    for number in range(30):
        outcomes.append(guess(checks, Attempt(f"guess-{number}@acme.test", "192.0.2.1")))
        assert guess(checks, mallory, lambda: "hello") == "right"
    assert outcomes == ["wrong"] * 20 + ["429 1"] * 10


def guess_once(checks: PasswordChecks, addresses: list[str]) -> int:
    return sum(guess(checks, Attempt(f"x-{number}@acme.test", address)) == "wrong" for number, address in enumerate(addresses))


def test_the_attempt_counters_are_bounded(checks: PasswordChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.tenants.sign_in.counts.MAX_TRACKED", 100)
    for number in range(300):
        guess(checks, Attempt(f"x-{number}@acme.test", f"10.5.{number // 250}.{number % 250}"))
        guess(checks, Attempt(f"y-{number}@acme.test", f"10.6.{number // 250}.{number % 250}"), lambda: "hello")
    for counted in (checks._pairs._counts, checks._addresses._counts, checks._signed_in):
        assert isinstance(counted, MemoryCounts)
        assert 70 < len(counted._counts) <= 100


# -- the cookie


def test_a_browser_is_known_for_the_logins_that_signed_in_with_it() -> None:
    cookie = devices.remember_device(SEALER, "", "ann@acme.test")
    cookie = devices.remember_device(SEALER, cookie, "bob@acme.test")
    assert devices.find_device(SEALER, cookie, "ann@acme.test") != devices.find_device(SEALER, cookie, "bob@acme.test") != ""
    assert devices.find_device(SEALER, cookie, "carl@acme.test") == ""
    assert devices.find_device(Sealer(b"o" * 32), cookie, "ann@acme.test") == ""
    for forged in ("", "~", "a.b.c", "~~~" + cookie[1:], "é.é.é", cookie.replace(".2", ".9", 1)):
        assert devices.find_device(SEALER, forged, "bob@acme.test") == ""
    many = cookie
    for number in range(20):
        many = devices.remember_device(SEALER, many, f"user-{number}@acme.test")
    assert len(many.split("~")) == devices.MAX_LOGINS
    again = devices.remember_device(SEALER, cookie, "ann@acme.test")
    assert len(again.split("~")) == 2


def test_a_browser_is_forgotten_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = devices.remember_device(SEALER, "", "ann@acme.test")
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + (devices.RETENTION_DAYS + 1) * 86_400_000)
    assert devices.find_device(SEALER, cookie, "ann@acme.test") == ""


# -- over HTTP


@pytest.fixture
def guarded(running: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """The live appliance with fresh counters of password checks."""
    checks = PasswordChecks()
    monkeypatch.setitem(vars(running.services), "password_checks", checks)
    return running


def sign_in(browser: Browser, login: str, password: str) -> httpx.Response:
    return browser.post(browser.at("", "/sign-in"), {"login": login, "password": password})


def test_ten_guesses_lock_no_login(guarded: Running) -> None:
    login = "guessed@acme.test"
    guarded.user(login, PASSWORD, "acme", "viewer")
    browser = Browser(guarded)
    assert sign_in(browser, login, PASSWORD).status_code == 200
    assert any(line.startswith("__Host-gos-device=") and "Max-Age=15552000" in line for line in browser.set_cookies)
    device = {host: {"__Host-gos-device": jar["__Host-gos-device"]} for host, jar in browser.cookies.items() if len(jar) > 1}
    for _ in range(10):  # as anybody could, anywhere
        with pytest.raises(SignInFailed):
            people.check_password(login, "a wrong password")
    browser = Browser(guarded)
    browser.cookies |= device
    assert sign_in(browser, login, PASSWORD).status_code == 200
    assert urlsplit(browser.url).path == "/console/"


def test_guessing_too_fast_is_answered_with_a_retry_time(guarded: Running) -> None:
    guarded.user("target@acme.test", PASSWORD, "acme", "viewer")
    pages = {
        login: [sign_in(Browser(guarded), login, "a wrong password") for _ in range(7)]
        for login in ("target@acme.test", "unknown@acme.test")
    }
    codes = {login: [page.status_code for page in answers] for login, answers in pages.items()}
    assert codes == dict.fromkeys(pages, [401] * 5 + [429] * 2)
    refused = pages["target@acme.test"][-1]
    assert int(refused.headers["retry-after"]) >= 1
    assert "too many attempts; try again in" in refused.text.lower()
    assert pages["unknown@acme.test"][-1].headers["retry-after"] == refused.headers["retry-after"]


def test_guesses_at_ones_own_password_are_slowed_down_too(guarded: Running) -> None:
    login = "changing@acme.test"
    guarded.user(login, PASSWORD, "acme", "viewer")
    browser = Browser(guarded)
    browser.sign_in(login, PASSWORD, "acme")
    form = {"old": "a wrong password", "password": "a new password, a long one", "again": "a new password, a long one"}
    codes = [browser.post(browser.at("acme", "/console/account/password"), form).status_code for _ in range(12)]
    assert codes == [422] * 10 + [429] * 2
