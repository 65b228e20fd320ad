"""What `gos doctor` and `gos config check` say about identity providers and the account for emergencies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.app.findings.sign_in import account_findings, provider_findings
from appliance.cli import main
from appliance.core import clock
from appliance.core.config import Config, load_config
from appliance.tenants import people, service
from tests.store.opening import migrated
from tests.webapps.identity_provider import CLIENT, IdentityProvider


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    instance = IdentityProvider()
    yield instance
    instance.close()


def configure(provider: IdentityProvider, changed: dict[str, Any] | None = None, **settings: Any) -> Config:
    entry = {"id": "corp", "issuer": provider.issuer, "client_id": CLIENT, "client_secret": "hush", **(changed or {})}
    flags = {"sign_in.providers": [entry], **{f"sign_in.{name}": value for name, value in settings.items()}}
    return load_config(environment={}, flags=flags)


def test_a_provider_that_answers_is_ok_and_what_to_register_is_named(provider: IdentityProvider) -> None:
    findings = list(provider_findings(configure(provider)))
    assert [level for level, _ in findings] == ["ok", "note"]
    assert "answers; register there the redirect URI http://localhost:8080/oidc/corp/callback" in findings[0][1]
    assert "back-channel logout URI is http://localhost:8080/oidc/corp/logout" in findings[1][1]


def test_what_is_wrong_with_a_provider_is_named(provider: IdentityProvider, tmp_path: Path) -> None:
    assert "no client secret" in list(provider_findings(configure(provider, {"client_secret": ""})))[2][1]
    missing = {"client_secret": "", "client_secret_file": str(tmp_path / "none")}
    wrong = {"issuer": f"{provider.issuer}/realms/none"}
    for changed, words in ((missing, "cannot be read (No such file"), (wrong, "did not return a JSON object")):
        ((level, text),) = provider_findings(configure(provider, changed))
        assert (level, words in text) == ("FAIL", True), text
    provider.close()
    ((level, text),) = provider_findings(configure(provider))
    assert (level, "could not be reached" in text) == ("FAIL", True), text


def test_tenants_that_do_not_exist_and_a_missing_account_are_named(provider: IdentityProvider, tmp_path: Path) -> None:
    roles = [{"group": "a", "tenant": tenant, "role": "viewer"} for tenant in ("acme", "acmee", "acmee")]
    config = configure(provider, {"groups_claim": "groups", "roles": roles}, local_accounts=False, break_glass="root@corp.test")
    with migrated(f"sqlite:///{tmp_path}/gos.db"):
        service.create_tenant("acme", "Acme")
        tenant, account = account_findings(config)
        assert tenant == ("note", "the identity provider corp gives roles in the tenant acmee, which does not exist")
        assert (account[0], "`gos user add root@corp.test --password-stdin --lasting`" in account[1]) == ("FAIL", True)
        people.create_user("root@corp.test", "correct horse battery", expires_at=clock.now_ms() + 60_000)
        account = list(account_findings(config))[1]
        assert (account[0], "`gos user password root@corp.test --lasting`" in account[1]) == ("FAIL", True), "it would end unused"
        people.set_password("root@corp.test", "correct horse battery")
        assert list(account_findings(config))[1][0] == "ok"


def test_the_check_of_the_configuration_reads_client_secrets(
    provider: IdentityProvider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    entry = f"{{id: corp, issuer: '{provider.issuer}', client_id: gos, client_secret_file: {tmp_path}/secret}}"
    file.write_text(f"sign_in:\n  providers: [{entry}]\n")
    assert main(["--config", str(file), "config", "check"]) != 0
    assert "client_secret_file of corp" in capsys.readouterr().err
    (tmp_path / "secret").write_text("hush")
    assert main(["--config", str(file), "config", "check"]) == 0
