"""`gos person`: what is stored about somebody is listed, exported and erased from the shell."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from tests.cli.test_store import Gos, acme, data, gos

__all__ = ["acme", "gos"]
ANN = "ann@example.com"


@pytest.fixture
def ann(gos: Gos, acme: str) -> str:
    """A builder of the tenant, which has another owner."""
    for login, role in (("bob@example.com", "owner"), (ANN, "builder")):
        assert gos("user", "add", login, f"--tenant={acme}", f"--role={role}")[0] == 0
    return ANN


def test_a_person_is_shown_and_exported(gos: Gos, ann: str, acme: str, tmp_path: Path) -> None:
    rows = {row["kind"]: row for row in data(gos("person", "show", ann, "--json"))}
    assert rows["account"] == {
        "kind": "account", "rows": 1, "erasure": "deleted", "kept": "until the account is deleted", "reason": "",
    }  # fmt: skip
    assert rows["audit-trail"]["erasure"] == "kept"
    assert "hash" in rows["audit-trail"]["reason"]

    file = tmp_path / "ann.zip"
    code, out, _ = gos("person", "export", ann, str(file))
    assert code == 0
    assert f"rows about {ann}" in out
    assert file.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(io.BytesIO(file.read_bytes())) as archive:
        [membership] = json.loads(archive.read("memberships.json"))["membership"]
    assert (membership["tenant_id"], membership["role"]) == (acme, "builder")
    code, _, errors = gos("person", "export", ann, str(file))
    assert code == 1
    assert "exists already" in errors


def test_a_person_is_erased_after_their_login_is_typed(gos: Gos, ann: str) -> None:
    code, out, errors = gos("person", "erase", ann, stdin="somebody else\n")
    assert (code, out) == (1, "")
    assert "deleted: 1 of account." in errors
    assert "kept: 2 of audit-trail. Each entry contains the hash" in errors
    assert "nothing was erased" in errors
    assert gos("person", "show", ann)[0] == 0

    erased = data(gos("person", "erase", ann, "--json", stdin=f"{ann}\n"))
    assert erased["pseudonym"].endswith("@person.invalid")
    assert erased["delete"] >= 2
    assert ann not in {row["login"] for row in data(gos("user", "list", "--json"))}
    assert data(gos("person", "show", ann, "--json")) == []  # an address without an account now


def test_the_last_owner_stays_unless_that_is_allowed(gos: Gos, ann: str) -> None:
    code, _, errors = gos("person", "erase", "bob@example.com", "--yes")
    assert code == 1
    assert "is the only owner of" in errors
    assert gos("person", "erase", "bob@example.com", "--yes", "--leave-tenants-without-owner")[0] == 0


def test_what_is_not_there_is_named(gos: Gos, acme: str, tmp_path: Path) -> None:
    for argv in (("show", "nobody"), ("export", "nobody", str(tmp_path / "x.zip")), ("erase", "nobody", "--yes")):
        code, _, errors = gos("person", *argv)
        assert code == 1
        assert "there is no user 'nobody'" in errors
    assert not (tmp_path / "x.zip").exists()
    assert gos("person", "show", "guest@example.com", "--tenant", "nowhere")[2] == "gos: there is no tenant 'nowhere'\n"
    assert data(gos("person", "show", "guest@example.com", "--tenant", acme, "--json")) == []
