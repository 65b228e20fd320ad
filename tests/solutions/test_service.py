"""Plan and apply: as a whole or not at all, twice is once, obstacles are named."""

from collections.abc import Callable
from typing import Any

import pytest

from appliance.core.errors import Conflict, DefinitionInvalid, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.monitor import AuditFilter, audit
from appliance.solutions.references import list_references
from tests.solutions.conftest import SolutionTenant, make_solution, read

THINGS = "collections/things.yaml"
PROCESS = "processes/add/process.yaml"


def actions_of(changes: Any) -> dict[str, str]:
    return {f"{change.kind} {change.id}": change.action for change in changes}


def list_contents(tenant: SolutionTenant) -> list[str]:
    """The contents of the tenant."""
    results = []
    for path, name in (("processes", "id"), ("datapool", "name"), ("integrations", "slug")):
        results += [f"{path} {item[name]}" for item in tenant.api.get(f"/api/v1/{path}").json()["data"]]
    return results


def test_a_plan_says_what_is_new_and_changes_nothing(tenant: SolutionTenant) -> None:
    assert actions_of(tenant.plan(make_solution())) == {
        "collection things": "create",
        "integration erp": "create",
        "process add": "create",
    }
    assert list_contents(tenant) == []


def test_an_applied_solution_runs_and_a_second_apply_changes_nothing(tenant: SolutionTenant) -> None:
    tenant.apply(make_solution())
    answer = tenant.api.post("/api/v1/processes/add/execute?wait=20", json={"a": 1}).json()["data"]
    assert (answer["status"], answer["output"]) == ("succeeded", 2)
    before = tenant.api.get("/api/v1/integrations/erp").json()["data"]
    assert set(actions_of(tenant.apply(make_solution())).values()) == {"unchanged"}
    assert tenant.api.get("/api/v1/integrations/erp").json()["data"] == before
    assert len(tenant.api.get("/api/v1/processes/add/versions").json()["data"]) == 1


def test_how_many_calls_run_at_once_travels_with_the_folder(tenant: SolutionTenant) -> None:
    file = "integrations/erp.yaml"
    own = make_solution()[file]
    changed = make_solution(**{file: own + "concurrency: 3\n"})
    tenant.apply(changed)
    assert tenant.api.get("/api/v1/integrations/erp").json()["data"]["concurrency"] == 3
    assert set(actions_of(tenant.plan(changed)).values()) == {"unchanged"}
    assert "concurrency changed" in [change.summary for change in tenant.plan(make_solution())]
    with pytest.raises(DefinitionInvalid, match="concurrency must be a whole number from 1 to 64"):
        tenant.plan(make_solution(**{file: own + "concurrency: 65\n"}))


def test_only_what_differs_is_changed(tenant: SolutionTenant) -> None:
    tenant.apply(make_solution())
    changed = make_solution(**{"processes/add/steps/sum.ts": "export default (input: {a: number}) => input.a + 2\n"})
    plan = tenant.plan(changed)
    assert [change.action for change in plan] == ["unchanged", "unchanged", "update"]
    assert "steps/sum.ts changed" in plan[-1].summary
    tenant.apply(changed, message="two more")
    versions = tenant.api.get("/api/v1/processes/add/versions").json()["data"]
    assert [(v["version"], v["message"]) for v in versions] == [(2, "two more"), (1, "")]
    assert tenant.api.post("/api/v1/processes/add/execute?wait=20", json={"a": 1}).json()["data"]["output"] == 3


def test_a_version_rolled_back_is_published_again(tenant: SolutionTenant) -> None:
    tenant.apply(make_solution())
    tenant.apply(make_solution(**{"processes/add/steps/sum.ts": "export default () => 0\n"}))
    tenant.api.post("/api/v1/processes/add/rollback", json={"version": 1}).raise_for_status()
    again = make_solution(**{"processes/add/steps/sum.ts": "export default () => 0\n"})
    assert actions_of(tenant.apply(again))["process add"] == "update"
    assert tenant.api.get("/api/v1/processes/add").json()["data"]["published_version"] == 2


def test_a_missing_secret_is_reported_and_blocks_everything(make_tenant: Callable[..., SolutionTenant]) -> None:
    tenant = make_tenant()
    missing = [change for change in tenant.plan(make_solution()) if change.blocked]
    assert [(change.kind, change.id, change.action) for change in missing] == [("secret", "erp_token", "missing")]
    with pytest.raises(Conflict, match="secret erp_token: set it"):
        tenant.apply(make_solution())
    assert list_contents(tenant) == []


def test_a_connector_that_is_not_installed_blocks(tenant: SolutionTenant) -> None:
    files = make_solution(**{"integrations/erp.yaml": "connector: sap-r2\n"})
    assert [change.id for change in tenant.plan(files) if change.blocked] == ["sap-r2"]
    with pytest.raises(Conflict, match="connector sap-r2"):
        tenant.apply(files)


def test_code_that_does_not_compile_is_reported_by_file_and_line_and_nothing_is_applied(tenant: SolutionTenant) -> None:
    files = make_solution(**{"processes/add/steps/sum.ts": "export default function () {\n  return 1 +;\n}\n"})
    with pytest.raises(DefinitionInvalid) as caught:
        tenant.apply(files)
    assert caught.value.details[0].message.startswith("processes/add/steps/sum.ts:2:13: ")
    assert list_contents(tenant) == []


def test_invalid_settings_are_reported_by_line(tenant: SolutionTenant) -> None:
    files = make_solution(**{"integrations/erp.yaml": "connector: http\nsettings:\n  base_url: ftp://x\n  speed: 3\n"})
    with pytest.raises(DefinitionInvalid) as caught:
        tenant.plan(files)
    assert sorted(d.message.split(": ")[0] for d in caught.value.details) == ["integrations/erp.yaml:3", "integrations/erp.yaml:4"]


def test_a_secret_written_into_a_file_is_refused_without_repeating_it(tenant: SolutionTenant) -> None:
    text = make_solution()["integrations/erp.yaml"].replace("= secrets.erp_token", "hunter2-in-git")
    with pytest.raises(DefinitionInvalid) as caught:
        tenant.apply(make_solution(**{"integrations/erp.yaml": text}))
    (detail,) = caught.value.details
    assert (detail.code, detail.message.split(": ")[0]) == ("secret_in_file", "integrations/erp.yaml:4")
    assert "hunter2" not in str(caught.value) + detail.message


def test_a_late_failure_takes_everything_back(tenant: SolutionTenant) -> None:
    """The value of a secret is looked at last: by then the collection has been made inside the same write."""
    tenant.api.put("/api/v1/secrets/erp_url", json={"value": "no address"}).raise_for_status()
    files = make_solution(**{"integrations/erp.yaml": "connector: http\nsettings: {base_url: = secrets.erp_url}\n"})
    with pytest.raises(ValidationFailed, match="are not valid for the connector"):
        tenant.apply(files)
    assert list_contents(tenant) == []
    tenant.api.put("/api/v1/secrets/erp_url", json={"value": "https://erp.example.com"}).raise_for_status()
    tenant.apply(files)
    assert len(list_contents(tenant)) == 3


def test_a_process_that_names_what_does_not_exist_is_blocked(tenant: SolutionTenant) -> None:
    files = make_solution()
    del files[THINGS]
    assert [c.blocked for c in tenant.plan(files) if c.blocked] == [
        "it uses the collection things, which is in neither the tenant nor the solution; add collections/things.yaml"
    ]


def test_loss_of_values_blocks_until_it_is_allowed(tenant: SolutionTenant) -> None:
    tenant.apply(make_solution())
    tenant.api.post("/api/v1/datapool/things/entities", json={"code": "a", "weight": 3}).raise_for_status()
    files = make_solution(**{THINGS: "fields:\n  - {name: code, type: text, unique: true}\n"})
    with pytest.raises(Conflict, match="allow_loss"):
        tenant.apply(files)
    tenant.apply(files, allow_loss=True)
    (entity,) = tenant.api.get("/api/v1/datapool/things/entities").json()["data"]
    assert "weight" not in entity
    assert set(actions_of(tenant.plan(files)).values()) == {"unchanged"}


def test_access_rules_are_replaced_not_merged(tenant: SolutionTenant) -> None:
    def rule(text: str) -> dict[str, str]:
        return make_solution(
            **{THINGS: f"fields: [{{name: code, type: text}}, {{name: weight, type: integer}}]\naccess: {{list: {text}}}\n"}
        )

    tenant.apply(rule("{code: {_eq: a}}"))
    tenant.apply(rule("{weight: {_gt: 1}}"))
    data = tenant.api.get("/api/v1/datapool/things").json()["data"]
    assert data["access"]["list"] == {"weight": {"_gt": 1}}


def test_collections_that_lead_to_others_are_made_after_them(tenant: SolutionTenant) -> None:
    files = make_solution(
        **{
            "collections/aaa.yaml": "fields: [{name: thing, type: relation, collection: things}]\n",
            "collections/tree.yaml": "fields: [{name: parent, type: relation, collection: tree}]\n",
        }
    )
    assert [change.id for change in tenant.apply(files) if change.kind == "collection"] == ["things", "aaa", "tree"]


def test_collections_that_lead_in_a_circle_are_blocked(tenant: SolutionTenant) -> None:
    files = make_solution(
        **{
            "collections/aaa.yaml": "fields: [{name: b, type: relation, collection: bbb}]\n",
            "collections/bbb.yaml": "fields: [{name: a, type: relation, collection: aaa}]\n",
        }
    )
    assert {change.id for change in tenant.plan(files) if change.blocked} == {"aaa", "bbb"}


def test_solutions_are_isolated_by_tenant(tenant: SolutionTenant, make_tenant: Callable[..., SolutionTenant]) -> None:
    tenant.apply(make_solution())
    assert list_contents(make_tenant()) == []


def test_an_apply_that_changes_something_is_audited(tenant: SolutionTenant) -> None:
    tenant.apply(make_solution())
    tenant.apply(make_solution())
    entries = audit.list_entries(tenant.scope, AuditFilter(action="solution.apply"), PageRequest()).items
    assert [entry.subject for entry in entries] == ["small"]


WATCHES = """
id: watch
on_failure: {process: late}
triggers:
  - {webhook: {path: watch, verify: {kind: standard-webhooks, secret: = secrets.hook}}}
  - {datapool: {collection: things, events: [created]}}
  - {process: {id: add}}
steps: [{id: one, rule: {expression: = 1}}]
"""


def test_references_of_triggers_are_checked(tenant: SolutionTenant) -> None:
    files = {"solution.yaml": "name: watching\n", "processes/watch/process.yaml": WATCHES}
    assert ("process", "late") in list_references(read(files).processes["watch"].definition)
    blocked = {f"{change.kind} {change.id}": change.blocked or "" for change in tenant.plan(files)}
    assert "gos secret set hook" in blocked["secret hook"]
    assert "uses the collection things, which is in neither the tenant nor the solution" in blocked["process watch"]
    tenant.api.put("/api/v1/secrets/hook", json={"value": "whsec_c3dvcmRmaXNoc3dvcmRmaXNoc3dvcmRmaXNo"}).raise_for_status()
    tenant.apply(make_solution())
    tenant.apply(files)
    pruned = {f"{c.kind} {c.id}": c.blocked or "" for c in tenant.plan({"solution.yaml": "name: small\n"}, prune=True)}
    assert pruned["collection things"].startswith("the process watch uses it")
    assert pruned["process add"].startswith("the process watch uses it")


def test_a_file_that_is_loaded_names_its_collection(tenant: SolutionTenant) -> None:
    text = "id: load\nsteps: [{id: a, file: {operation: parse, document: doc_x, format: csv, to: {collection: gone}}}]\n"
    (change,) = tenant.plan({"solution.yaml": "name: loading\n", "processes/load/process.yaml": text})
    assert "uses the collection gone" in (change.blocked or "")
