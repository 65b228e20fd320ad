"""The contract and the route reference match the code."""

from collections.abc import Iterator
from pathlib import Path

from appliance import api
from appliance.core.errors import ApplianceError
from appliance.tenants import SCOPES
from tests.api.reference import PAGE, routes_page

CONTRACT = (Path(__file__).parent.parent.parent / "docs" / "contract.md").read_text("utf-8")
NOT_OF_THE_API = {
    "config_invalid", "factor_refused", "proof_expired", "provider_refused", "sign_in_expired", "sign_in_failed", "sign_in_refused",
}  # fmt: skip
"""Codes of the command line and of the sign-in page."""


def test_the_page_of_routes_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == routes_page(), "run `.venv/bin/python -m tests.api.reference` and commit the page"


def test_the_contract_names_every_scope() -> None:
    assert [name for name in SCOPES if f"| `{name}` |" not in CONTRACT] == []


def test_the_contract_names_every_error_code() -> None:
    assert api.load_routes(), "the errors of the API are known once its modules are loaded"
    codes = {error.code for error in _subclasses(ApplianceError) if error.__module__.startswith("appliance.")}
    assert sorted(code for code in codes - NOT_OF_THE_API if f"`{code}`" not in CONTRACT) == []


def _subclasses(base: type[ApplianceError]) -> Iterator[type[ApplianceError]]:
    for each in base.__subclasses__():
        yield each
        yield from _subclasses(each)
