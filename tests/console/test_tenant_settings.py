"""The settings of a tenant: its name, the rules of its folders, and its limits with their use."""

import html
import re
from collections.abc import Callable

import pytest

from appliance.documents import FolderRule, folder_rules
from appliance.tenants import service
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD

TENANT, PAGE = "settled", "/console/settings"


@pytest.fixture(scope="module")
def house(running: Running) -> Running:
    for role in ("owner", "builder", "viewer"):
        running.user(f"{role}@settled.test", PASSWORD, TENANT, role)
    return running


@pytest.fixture(scope="module")
def visitor(house: Running) -> Callable[[str], Browser]:
    browsers: dict[str, Browser] = {}

    def get(role: str) -> Browser:
        if role not in browsers:
            browsers[role] = Browser(house)
            assert browsers[role].sign_in(f"{role}@settled.test", PASSWORD, TENANT).status_code == 200
        return browsers[role]

    return get


def actions(house: Running) -> list[str]:
    with house.api(TENANT) as api:
        return [each["action"] for each in api.get("/api/v1/logs/audit").json()["data"]]


def test_an_owner_renames_the_tenant(house: Running, visitor: Callable[[str], Browser]) -> None:
    owner = visitor("owner")
    page = owner.post(owner.at(TENANT, f"{PAGE}/name"), {"name": "  Settled & sons "})
    assert (page.status_code, service.get_tenant(TENANT).name) == (200, "Settled & sons")
    assert "<strong>Settled &amp; sons</strong>" in page.text
    assert "tenant.rename" in actions(house)
    refused = owner.post(owner.at(TENANT, f"{PAGE}/name"), {"name": "   "})
    assert refused.status_code == 422
    assert 'id="name-error"' in refused.text
    assert service.get_tenant(TENANT).name == "Settled & sons"


def test_other_roles_change_only_what_they_are_permitted_to(house: Running, visitor: Callable[[str], Browser]) -> None:
    for role, may_rule in (("viewer", False), ("builder", True)):
        browser = visitor(role)
        page = browser.get(browser.at(TENANT, PAGE)).text
        assert house.config.cdn_url(TENANT) in page
        assert 'data-testid="rename-tenant"' not in page
        assert ('data-testid="set-folder-rule"' in page) == may_rule
        assert browser.post(browser.at(TENANT, f"{PAGE}/name"), {"name": "Mine"}).status_code == 403
    for path in ("folders", "folders/remove"):
        assert visitor("viewer").post(visitor("viewer").at(TENANT, f"{PAGE}/{path}"), {"folder": "a"}).status_code == 403


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"folder": "contracts"}, "review"),
        ({"folder": "contracts", "days": "soon"}, "days"),
        ({"folder": "contracts", "days": "0"}, "days"),
        ({"folder": "a/../b", "days": "3"}, "folder"),
    ],
)
def test_an_empty_or_invalid_rule_is_refused_at_its_field(
    house: Running, visitor: Callable[[str], Browser], form: dict[str, str], field: str
) -> None:
    builder = visitor("builder")
    refused = builder.post(builder.at(TENANT, f"{PAGE}/folders"), form)
    assert refused.status_code == 422
    assert f'id="{field}-error"' in refused.text
    assert f'value="{form["folder"]}"' in refused.text
    assert folder_rules.list_rules(house.tenant(TENANT)) == []


def test_a_rule_is_set_displayed_and_removed(house: Running, visitor: Callable[[str], Browser]) -> None:
    builder, scope = visitor("builder"), house.tenant(TENANT)
    page = builder.post(builder.at(TENANT, f"{PAGE}/folders"), {"folder": "/contracts/", "days": "30", "review": "required"})
    (rule,) = folder_rules.list_rules(scope)
    assert (rule.folder, rule.review, rule.delete_after_days) == ("contracts", "required", 30)
    assert all(text in page.text for text in ("/contracts", "after approval", "after 30 days", "builder@settled.test"))
    assert read_limits(page.text)["Folder rules"] == ("1", "500")
    builder.post(builder.at(TENANT, f"{PAGE}/folders/remove"), {"folder": "contracts"})
    assert folder_rules.list_rules(scope) == []


def test_limits_are_shown_with_their_use(house: Running, visitor: Callable[[str], Browser]) -> None:
    viewer = visitor("viewer")
    before = read_limits(viewer.get(viewer.at(TENANT, PAGE)).text)
    with house.api(TENANT) as api:
        api.post("/api/v1/datapool", json={"name": "things", "fields": [{"name": "a", "type": "text"}]}).raise_for_status()
        for number in range(3):
            api.post("/api/v1/datapool/things/entities", json={"a": str(number)}).raise_for_status()
    folder_rules.put_rule(house.tenant("globex"), FolderRule("theirs", "required"))
    page = viewer.get(viewer.at(TENANT, PAGE)).text
    assert read_limits(page) == {**before, "Collections": (str(int(before["Collections"][0]) + 1), "500")}
    assert re.search(r"Entities</a></dt><dd>3<", page)


def read_limits(page: str) -> dict[str, tuple[str, str]]:
    """The use and the maximum of each limit, by name."""
    table = page.partition('class="limits"')[2].partition("</table>")[0]
    rows = [re.sub(r"<[^>]*>", "|", row) for row in re.findall(r"<tr data-testid.*?</tr>", table, re.DOTALL)]
    columns = [[cell for cell in html.unescape(row).split("|") if cell.strip()] for row in rows]
    return {cell[0]: (cell[1], cell[2]) for cell in columns}
