"""`scim2-tester`, the conformance test of the python-scim project, against a running appliance."""

import httpx2
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

from appliance.testing.running import Running
from tests.scim.provider import Directory


def test_the_conformance_test_finds_nothing(live: Running, trusted: Directory) -> None:
    name = f"localhost{live.config.port_suffix}"
    address = f"http://127.0.0.1:{live.config.server.port}/scim/v2"
    headers = {"Authorization": f"Bearer {trusted.token}", "Host": name}
    with httpx2.Client(base_url=address, headers=headers, trust_env=False) as client:
        results = check_server(SyncSCIMClient(client))
    failed = [each for each in results if each.status not in (Status.SUCCESS, Status.SKIPPED)]
    wrong = [f"{each.title}: {each.resource_type}: {each.reason}" for each in failed]
    assert "\n".join(wrong) == ""
    done = [each for each in results if each.status == Status.SUCCESS]
    assert {each.resource_type for each in done} >= {"User", "Group"}
    assert len(done) > 50
