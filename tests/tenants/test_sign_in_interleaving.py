"""Two sign-ins, sign-outs and repeated requests end as if one had followed the other."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from appliance.core import ids
from appliance.core.catalogues import Languages
from appliance.core.config import load_config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.tenants import idempotency, people
from appliance.tenants.idempotency import RequestKey
from appliance.tenants.models import Person
from appliance.tenants.sign_in import Attempts, PasswordResets, counts, email_codes, sessions
from appliance.tenants.sign_in.email_codes import CodeTarget, EmailCodes
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair, without_exclusive_writes
from tests.tenants.office import HOUR, OTHER_PASSWORD, PASSWORD, Office, add_person, open_offices, user_of


@pytest.fixture(scope="module")
def sealer(cluster: Cluster) -> Iterator[Sealer]:
    with open_offices(cluster) as sealer:
        yield sealer


def signed_in(of: Office, person: Person, token: Any) -> bool:
    session = sessions.find_session(of.sealer, str(token), None, lifetime_ms=HOUR, use=sessions.SessionUse())
    return session is not None and session.user_id == person.id


def a_code_is_redeemed_twice(of: Office) -> Pair:
    root = sessions.new_root()
    sessions.create_session(of.sealer, user_of(of.ann), None, lifetime_ms=HOUR, root=root)
    code = sessions.create_code(of.sealer, user_of(of.ann), of.scope.tenant_id, "enter", root=root)
    redeemed: list[Any] = []

    def redeem() -> None:
        redeemed.append(sessions.redeem_code(of.sealer, code, of.scope.tenant_id, "enter"))

    return Pair(redeem, redeem, lambda: sorted(each is None for each in redeemed))


def a_session_is_used_and_signed_out(of: Office) -> Pair:
    person = add_person()
    token = sessions.create_session(of.sealer, person.id, None, lifetime_ms=HOUR)
    return Pair(
        lambda: sessions.find_session(of.sealer, token, None, lifetime_ms=2 * HOUR, use=sessions.SessionUse()) and None,
        lambda: sessions.close_sign_in(of.sealer, token),
        lambda: signed_in(of, person, token),
    )


def check_signed_out(person: Person) -> None:
    """No session and no code is left, whatever came first."""
    assert db.rows("SELECT kind FROM session WHERE user_id = ?", (person.id,)) == []


def a_tenant_is_entered_and_the_browser_signed_out(of: Office) -> Pair:
    """On whichever host one signs out, nothing of the sign-in is left."""
    person = Person.get_by_id(user_of(of.ann))
    root = sessions.new_root()
    token = sessions.create_session(of.sealer, person.id, None, lifetime_ms=HOUR, root=root)
    code = sessions.create_code(of.sealer, person.id, of.scope.tenant_id, "enter", root=root)
    return Pair(
        lambda: sessions.enter(of.sealer, code, of.scope.tenant_id, lifetime_ms=HOUR) and None,
        lambda: sessions.close_sign_in(of.sealer, token),
        lambda: check_signed_out(person),
    )


def a_browser_is_handed_over_and_signed_out(of: Office) -> Pair:
    person, root = add_person(), sessions.new_root()
    token = sessions.create_session(of.sealer, person.id, None, lifetime_ms=HOUR, root=root)
    return Pair(
        lambda: sessions.create_code(of.sealer, person.id, of.scope.tenant_id, "enter", root=root) and None,
        lambda: sessions.close_sign_in(of.sealer, token),
        lambda: check_signed_out(person),
    )


def somebody_signs_in_while_the_password_is_replaced(of: Office) -> Pair:
    person = add_person(PASSWORD)
    return Pair(
        lambda: sessions.sign_in(of.sealer, people.check_password(person.login, PASSWORD), lifetime_ms=HOUR) and None,
        lambda: people.set_password(person.login, OTHER_PASSWORD),
        lambda: check_signed_out(person),
    )


def a_password_is_changed_twice(of: Office) -> Pair:
    """Of two who know it, the first one decides what it is."""
    person = add_person(PASSWORD)
    change = partial(people.change_password, of.scope, person.login, PASSWORD)
    return Pair.of((partial(change, f"{number} {OTHER_PASSWORD}") for number in range(2)), lambda: of.count("audit_entry"))


def a_link_replaces_a_password_twice(of: Office) -> Pair:
    """One of two who have the link chooses the password."""
    person, token = add_person(PASSWORD), ids.new("lnk")
    resets = PasswordResets(load_config(environment={}, flags={}), of.sealer, Languages(tuple))
    resets.store(person.login, token, "192.0.2.0")

    def replace(password: str) -> None:
        resets.replace(token, password)

    return Pair.of(partial(replace, f"{number} {OTHER_PASSWORD}") for number in range(2))


def two_wrong_codes(of: Office) -> Pair:
    codes, target = EmailCodes(of.sealer), CodeTarget(of.scope, "webapp:shop", "shop.test")
    code = codes.issue(target, "ann@firma.test", "192.0.2.1", allowed=True)
    return Pair.of(
        (partial(codes.check, target, code.id, "no", "192.0.2.1"),) * 2,
        lambda: db.rows("SELECT tries FROM email_code WHERE id = ?", (code.id,)),
    )


def a_right_code_twice(of: Office) -> Pair:
    codes, target = EmailCodes(of.sealer), CodeTarget(of.scope, "webapp:shop", "shop.test")
    code = codes.issue(target, "ann@firma.test", "192.0.2.1", allowed=True)
    emails: list[str] = []
    check = lambda: emails.append(codes.check(target, code.id, code.code, "192.0.2.1").email)  # noqa: E731
    return Pair(check, check, lambda: sorted(emails))


def two_last_codes_of_an_hour(of: Office) -> Pair:
    codes, target, most = EmailCodes(of.sealer), CodeTarget(of.scope, "webapp:shop", "shop.test"), email_codes
    for number in range(most.MAX_PER_ADDRESS - most.RESERVED_FOR_PROVEN - 1):
        codes.issue(target, "ann@firma.test", f"192.{number}.2.1", allowed=True)
    return Pair.of(
        (partial(codes.issue, target, "ann@firma.test", f"198.{number}.2.1", allowed=True) for number in range(2)),
        lambda: of.count("email_code"),
    )


def two_attempts_to_sign_in(of: Office) -> Pair:
    """Only the first one of two is free."""
    app = (of.scope.tenant_id, "console")
    attempts = (Attempts(1, 60.0, 60.0, counts.RowCounts("interleaved")) for _ in range(2))
    return Pair.of(partial(each.begin, app, "192.0.2.1") for each in attempts)


def a_request_is_begun_twice(of: Office) -> Pair:
    """The claim of an idempotency key is a shared write."""
    request = RequestKey("k", "POST", "/api/v1/things", b"{}")
    begin = partial(idempotency.begin, of.scope, request, "wrk_1", lambda _: True)
    return Pair.of((lambda: db.write(begin, is_shared=True),) * 2, lambda: of.count("idempotency"))


def a_request_of_a_dead_process_is_begun_twice(of: Office) -> Pair:
    request = RequestKey("k", "POST", "/api/v1/things", b"{}")
    begin = partial(idempotency.begin, of.scope, request, is_alive=lambda owner: owner != "wrk_dead")
    db.write(lambda: begin("wrk_dead"))
    return Pair.of(
        (partial(db.write, partial(begin, f"wrk_{number}"), is_shared=True) for number in range(2)), lambda: of.count("idempotency")
    )


def a_request_is_finished_and_begun_again(of: Office) -> Pair:
    request = RequestKey("k", "POST", "/api/v1/things", b"{}")
    begin = partial(idempotency.begin, of.scope, request, "wrk_1", lambda _: True)
    db.write(begin)
    response = idempotency.StoredResponse(201, {}, "made")
    return Pair(
        lambda: db.write(lambda: idempotency.finish(of.scope, request, response), is_shared=True),
        lambda: db.write(begin, is_shared=True) and None,
        lambda: db.rows("SELECT state FROM idempotency WHERE tenant_id = ?", (of.scope.tenant_id,)),
    )


PAIRS: dict[str, Callable[[Office], Pair]] = {
    each.__name__: each
    for each in (
        a_code_is_redeemed_twice, a_session_is_used_and_signed_out, a_tenant_is_entered_and_the_browser_signed_out,
        a_browser_is_handed_over_and_signed_out, somebody_signs_in_while_the_password_is_replaced, a_password_is_changed_twice,
        a_link_replaces_a_password_twice,
        two_wrong_codes, a_right_code_twice, two_last_codes_of_an_hour, two_attempts_to_sign_in, a_request_is_begun_twice,
        a_request_of_a_dead_process_is_begun_twice, a_request_is_finished_and_begun_again,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(sealer: Sealer, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](Office.make(sealer)), reads=request.config.option.all) >= 4


@pytest.mark.parametrize("pair", ["two_wrong_codes", "a_tenant_is_entered_and_the_browser_signed_out"])
def test_without_exclusive_writes_it_is_not_so(sealer: Sealer, pair: str) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: PAIRS[pair](Office.make(sealer)))
