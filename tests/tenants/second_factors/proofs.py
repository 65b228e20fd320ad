"""People with second factors, who prove who they are."""

import json
from collections.abc import Callable

import pyotp
import pytest

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ApplianceError
from appliance.tenants import Person, SignedIn, people
from appliance.tenants import service as tenants
from appliance.tenants.second_factors import SecondFactors
from appliance.tenants.sign_in import Attempt, sessions
from tests.tenants.second_factors.authenticator import Authenticator

ANN, BOB, PASSWORD = "ann@example.com", "bob@example.com", "a long enough password of hers"
HOST, ORIGIN = "gos.example", "http://gos.example:8080"
HOUR, STEP_MS = 3_600_000, 30_000
Move = Callable[[int], None]


def sign_up(login: str, roles: dict[str, str], sealer: Sealer) -> SignedIn:
    person = people.create_user(login, PASSWORD)
    for tenant, role in roles.items():
        people.add_member(tenants.system_scope(tenant), login, role)
    return sign_in(person, sealer)


def sign_in(person: Person, sealer: Sealer) -> SignedIn:
    token = sessions.sign_in(sealer, person, lifetime_ms=HOUR)
    session = sessions.find_session(sealer, token, None, lifetime_ms=HOUR, use=sessions.SessionUse())
    assert session is not None
    return session


def attempt_of(person: SignedIn, address: str = "192.0.2.1") -> Attempt:
    return Attempt(person.login, address)


def add_app(service: SecondFactors, person: SignedIn, name: str = "Phone") -> tuple[str, list[str]]:
    """The secret of a new app, and the recovery codes."""
    new = service.begin_app(person.user_id, person.login)
    return new.secret, service.finish_app(person, new.token, name, code_of(new.secret))


def code_of(secret: str, steps: int = 0) -> str:
    """The code that the app shows now, or some steps later."""
    return pyotp.TOTP(secret).generate_otp(clock.now_ms() // STEP_MS + steps)


def prove(service: SecondFactors, person: SignedIn, code: str) -> str:
    return service.prove_by_code(attempt_of(person), person.user_id, code)


def is_accepted(service: SecondFactors, person: SignedIn, code: str) -> bool:
    try:
        prove(service, person, code)
    except ApplianceError as error:
        if error.code != "factor_refused":
            raise
        return False
    return True


def add_passkey(service: SecondFactors, person: SignedIn, device: Authenticator, name: str = "Laptop") -> list[str]:
    ceremony = service.passkeys.begin_registration(person.user_id, person.login)
    return service.finish_passkey(person, ceremony.token, device.create(options_of(ceremony.options)), name)


def options_of(options: object) -> dict[str, object]:
    """The options as the browser gets them."""
    return dict(json.loads(json.dumps(options)))


def make_device(**more: object) -> Authenticator:
    return Authenticator(ORIGIN, HOST, **more)  # type: ignore[arg-type]  # members of tests


def use_passkey(service: SecondFactors, person: SignedIn, device: Authenticator) -> str:
    ceremony = service.passkeys.begin("a test", person.user_id)
    response = device.use(options_of(ceremony.options))
    return service.prove_by_passkey(attempt_of(person), ("a test", person.user_id), ceremony.token, response)


def code_of_refusal(service: SecondFactors, person: SignedIn, device: Authenticator) -> str:
    with pytest.raises(ApplianceError) as refused:
        use_passkey(service, person, device)
    return refused.value.code


def sign_in_by_passkey(service: SecondFactors, device: Authenticator) -> str:
    ceremony = service.begin_sign_in()
    response = device.use(options_of(ceremony.options))
    return str(service.find_by_passkey("192.0.2.1", ceremony.token, response).login)
