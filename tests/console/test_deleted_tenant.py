"""A form of a tenant that is deleted while it is served."""

import pytest

from appliance.testing.running import Running
from tests.api.deletions import deleted_before_a_write
from tests.api.resources import fresh
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD


@pytest.mark.writes_once(reason="the tenant can be deleted once")
def test_a_form_beside_the_deletion_of_its_tenant_is_refused_like_one_to_an_unknown_tenant(running: Running) -> None:
    name = fresh("leaving")
    running.tenant(name)
    login = f"owner@{name}.test"
    running.user(login, PASSWORD, name, "owner")
    browser = Browser(running)
    assert browser.sign_in(login, PASSWORD, name).status_code == 200
    with deleted_before_a_write(name) as is_deleted:
        page = browser.post(browser.at(name, "/console/secrets"), {"name": "erp", "value": "a"})
    assert is_deleted.is_set()
    assert (page.status_code, "this host name is not served here" in page.text.lower()) == (421, True), page.text
