"""What the configuration says about proxies that sign people in, and what of it is refused."""

from typing import Any

import pytest

from appliance.app.findings.sign_in import proxy_findings
from appliance.core.config import load_config
from appliance.core.errors import ConfigInvalid

PROXY = {"id": "proxy", "header": "Remote-User", "proxies": ["10.0.0.5/32"]}
ROLE = {"group": "ops", "tenant": "acme", "role": "operator"}


def load(*proxies: Any, **settings: Any) -> Any:
    flags = {"sign_in.trusted_headers": list(proxies), **{f"sign_in.{name}": value for name, value in settings.items()}}
    return load_config(environment={}, flags=flags)


@pytest.mark.parametrize(("changed", "words"), [
    ({"id": "Proxy"}, "lower-case"), ({"header": ""}, "header is ''"),
    ({"header": "X-Forwarded-For"}, "a header of the proxy's own"),
    ({"header": "Cookie"}, "a header of the proxy's own"), ({"header": "Remote User"}, "a header of the proxy's own"),
    ({"login_header": "Authorization"}, "login_header is"), ({"proxies": []}, "proxies must not be empty"),
    ({"proxies": ["proxy.example"]}, "not a network"), ({"proxies": ["10.0.0.5/8"]}, "not a network"),
    ({"proxies": ["0.0.0.0/0"]}, "anybody could sign in as anybody"), ({"proxies": ["::/0"]}, "anybody could sign in as anybody"),
    ({"proxies": ["10.0.0.5/32", "0.0.0.0/1"]}, "anybody could sign in"), ({"roles": [ROLE]}, "must be set together"),
    ({"groups_header": "Remote-Groups"}, "must be set together"), ({"logout_url": "javascript:x"}, "logout_url"),
    ({"groups_header": "Remote-Groups", "roles": [{**ROLE, "group": ""}]}, "must not be empty"),
    ({"groups_separator": ""}, "groups_separator"), ({"link_by": "mail"}, "one of none, login"),
])  # fmt: skip
def test_a_wrong_proxy_is_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        load({**PROXY, **changed})
    assert "sign_in.trusted_headers[0]" in refusal.value.message
    assert words in refusal.value.message


def test_no_two_sources_have_one_id() -> None:
    with pytest.raises(ConfigInvalid, match="have the id proxy"):
        load(PROXY, directories=[{"id": "proxy", "urls": ["ldaps://dc1"], "base_dn": "dc=x"}])


def test_a_proxy_is_enough_to_turn_local_accounts_off() -> None:
    assert load(PROXY, local_accounts=False, break_glass="root").sign_in.trusted_headers[0].issuer == "header:proxy"


def test_doctor_warns_of_wide_networks() -> None:
    narrow = list(proxy_findings(load(PROXY)))
    assert narrow == [("ok", "the proxy proxy may send Remote-User from 10.0.0.5/32")]
    ((level, text),) = proxy_findings(load({**PROXY, "proxies": ["10.0.0.0/8", "10.0.0.5/32"]}))
    assert (level, "anybody in 10.0.0.0/8" in text) == ("note", True)
