"""`gos service-account`, keys of accounts by `gos key`, and what `gos doctor` says when nobody is responsible."""

import json
from typing import Any

import pytest

from appliance.app.findings.checks import responsibility_findings
from appliance.core.database import db
from tests.cli.test_store import Gos, acme, gos
from tests.store.opening import migrated

__all__ = ["acme", "gos"]
LOGIN = "ann@acme.test"


@pytest.fixture
def account(gos: Gos, acme: str) -> str:
    assert gos("user", "add", LOGIN, "--tenant", acme, "--role", "owner")[0] == 0
    added = call(gos, "add", "intake", "--title", "Intake", "--responsible", LOGIN, "--scope", "logs.read")
    assert added["scopes"] == ["logs.read"]
    return "intake"


def call(gos: Gos, *argv: str, code: int = 0, stdin: str = "") -> Any:
    ended, out, errors = gos("service-account", *argv, "--tenant", "acme", "--json", stdin=stdin)
    assert ended == code, errors
    return json.loads(out) if out else errors


def test_an_account_is_listed_changed_disabled_enabled_and_deleted(gos: Gos, account: str) -> None:
    row = {"id": account, "title": "Intake", "state": "active", "responsible": LOGIN, "scopes": 1}
    assert call(gos, "list") == [row]
    assert call(gos, "change", account, "--title", "Orders", "--scope", "logs.read", "--scope", "skills.read")["id"] == account
    assert call(gos, "disable", account)["state"] == "disabled"
    assert call(gos, "list") == [{**row, "title": "Orders", "state": "disabled", "scopes": 2}]
    assert call(gos, "enable", account)["state"] == "active"
    assert "type the name" in call(gos, "delete", account, code=1, stdin="other\n")
    assert call(gos, "delete", account, stdin=f"{account}\n") == {"id": account}
    assert call(gos, "list") == []


def test_its_keys_have_its_scopes_and_end_with_it(gos: Gos, account: str) -> None:
    add = ("key", "add", "--tenant", "acme", "--name", "shop", "--service-account")
    assert "the service account does not have skills.read" in gos(*add, account, "--scope", "skills.read")[2]
    assert "there is no service account 'other'" in gos(*add, "other")[2]
    assert gos(*add, account)[0] == 0
    (key,) = json.loads(gos("key", "list", "--tenant", "acme", "--json")[1])
    assert (key["name"], key["scopes"], key["revoked_at"]) == ("shop", 1, None)
    call(gos, "delete", account, "--yes")
    (key,) = json.loads(gos("key", "list", "--tenant", "acme", "--json")[1])
    assert key["revoked_at"] is not None


def test_doctor_names_accounts_for_which_nobody_is_responsible(gos: Gos, account: str, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'data' / 'gos.db'}"
    with migrated(url):
        assert list(responsibility_findings()) == []
    assert gos("user", "delete", LOGIN, "--yes", "--leave-tenants-without-owner")[0] == 0
    with migrated(url):
        ((level, text),) = responsibility_findings()
    assert (level, "service accounts of the tenant acme" in text, ": intake; their keys still work" in text) == ("note", True, True)


def test_revoking_a_key_names_those_that_go_on(gos: Gos, account: str, tmp_path: Any) -> None:
    (top,) = json.loads(gos("key", "add", "--tenant", "acme", "--name", "deploy", "--scope", "logs.read", "--json")[1])
    (theirs,) = json.loads(gos("key", "add", "--tenant", "acme", "--name", "shop", "--service-account", account, "--json")[1])
    with migrated(f"sqlite:///{tmp_path / 'data' / 'gos.db'}"):
        db.write(lambda: db.execute("UPDATE api_key SET created_by = ? WHERE id = ?", (f"key:{top['id']}", theirs["id"])))
    _, out, _ = gos("key", "revoke", top["id"], "--tenant", "acme")
    assert out.endswith(f"go on working: {theirs['id']}\n")
    again = json.loads(gos("key", "revoke", top["id"], "--tenant", "acme", "--json")[1])
    assert again["continuing"] == [theirs["id"]]
    assert json.loads(gos("key", "revoke", theirs["id"], "--tenant", "acme", "--json")[1])["continuing"] == []
