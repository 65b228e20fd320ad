"""GitHub's published document, about twelve hundred operations: imported, stored, searched, typed, and every operation executed."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from gos_connector_openapi import OpenapiConnector
from gos_connector_openapi.importing import import_actions

from appliance.connectors.contract import Action
from appliance.connectors.registry import Installed, check_discovered
from appliance.connectors.testing import Answer, LoopbackServer, Received, open_context, schema_problems
from appliance.core.errors import ValidationFailed
from appliance.core.pages import PageRequest
from appliance.governance.executor import ActionRequest
from appliance.integrations.spec import IntegrationSpec
from appliance.processes.definitions import References, declare_process, load_dependencies, parse_definition
from appliance.processes.host import NoAgents
from tests.integrations.github_document import fetch_document
from tests.integrations.world import World, open_world

# Operations whose own example is of another type than the document says.
CONTRADICTIONS = {
    "actions_list_org_variables", "agents_list_org_variables", "classroom_get_a_classroom", "classroom_get_an_assignment",
    "classroom_list_accepted_assignments_for_an_assignment", "classroom_list_assignments_for_a_classroom",
    "classroom_list_classrooms", "dependabot_get_alert", "dependabot_list_alerts_for_enterprise",
    "dependabot_list_alerts_for_org", "dependabot_list_alerts_for_repo", "dependabot_repository_access_for_enterprise",
    "dependabot_repository_access_for_org", "enterprise_team_organizations_get_assignments", "meta_get",
    "orgs_list_attestations_bulk", "projects_list_for_org", "projects_list_for_user", "projects_list_items_for_org",
    "projects_list_items_for_user", "projects_list_view_items_for_org", "projects_list_view_items_for_user",
    "repos_list_custom_deployment_rule_integrations", "security_advisories_list_global_advisories",
    "users_list_attestations_bulk",
}  # fmt: skip
METHODS = ("get", "put", "post", "delete", "patch")


class DocumentServer:
    """Serves the API of a document: checks requests against it and answers with its examples."""

    def __init__(self, content: bytes) -> None:
        self.document = json.loads(content)
        self.violations: list[str] = []
        self.templates = [
            (re.compile(re.sub(r"\\\{[^/]+?\\\}", "([^/]+)", re.escape(path)) + "$"), path) for path in self.document["paths"]
        ]
        self.server = LoopbackServer()
        self.server.answers = Everything(self)
        self.content = content

    def resolve(self, part: Any) -> Any:
        while isinstance(part, dict) and "$ref" in part:
            node = self.document
            for name in part["$ref"].split("/")[1:]:
                node = node[name]
            part = node
        return part

    def answer(self, request: Received) -> Answer:
        path, _, query = request.path.partition("?")
        if path == "/openapi.json":
            return Answer(200, {"Content-Type": "application/json"}, self.content)
        # More than one template may match a path; the one with the most literal characters wins.
        candidates = [
            (template, match)
            for pattern, template in self.templates
            if (match := pattern.match(path)) and request.method.lower() in self.document["paths"][template]
        ]
        if not candidates:
            self.violations.append(f"no operation: {request.method} {path}")
            return Answer(404)
        template, match = max(candidates, key=lambda each: len(re.sub(r"\{.*?\}", "", each[0])))
        operation = self.document["paths"][template][request.method.lower()]
        params = parse_qs(query, keep_blank_values=True)
        for parameter in map(self.resolve, operation.get("parameters", [])):
            if parameter["in"] == "query" and parameter.get("required") and parameter["name"] not in params:
                self.violations.append(f"{template}: no {parameter['name']}")
        if any(not unquote(value) for value in match.groups()):
            self.violations.append(f"{template}: an empty name")
        self._check_body(template, operation, request)
        return self._success(operation)

    def _check_body(self, template: str, operation: Any, request: Received) -> None:
        body = self.resolve(operation.get("requestBody")) or {}
        if not request.body:
            if body.get("required") and "application/json" in body["content"]:
                self.violations.append(f"{template}: no body")
            return
        media = request.headers["content-type"]
        if media not in body.get("content", {}):
            self.violations.append(f"{template}: a body of {media}")
        elif media == "application/json":
            required = self.resolve(body["content"][media]["schema"]).get("required", [])
            value = json.loads(request.body)
            if missing := [name for name in required if name not in value]:
                self.violations.append(f"{template}: no {missing}")

    def _success(self, operation: Any) -> Answer:
        status, response = next((s, self.resolve(r)) for s, r in operation["responses"].items() if s.startswith(("2", "3")))
        content = response.get("content", {})
        media = "application/json" if "application/json" in content else next(iter(content), "")
        if not media:
            return Answer(int(status), body=b"")
        examples = list(content[media].get("examples", {}).values())
        example = self.resolve(examples[0]).get("value") if examples else content[media].get("example")
        example = self.resolve(example) if example is not None else {}
        body = json.dumps(example).encode() if "json" in media else b"text"
        return Answer(int(status), {"Content-Type": media}, body)

    def has_success(self, action: Action) -> bool:
        """Whether the operation has a successful response that is no redirect, and no server of its own."""
        operation = self.document["paths"][action.plan["path"]][action.plan["method"].lower()]
        return "servers" not in operation and any(status.startswith("2") for status in operation["responses"])


class Everything(dict[str, Any]):
    def __init__(self, document_server: DocumentServer) -> None:
        super().__init__()
        self.document_server = document_server

    def get(self, _path: str, _default: Any = None) -> Any:
        return self.document_server.answer


@pytest.fixture(scope="module")
def github() -> bytes:
    return fetch_document().read_bytes()


@pytest.fixture(scope="module")
def document_server(github: bytes) -> Iterator[DocumentServer]:
    document_server = DocumentServer(github)
    yield document_server
    document_server.server.close()


@pytest.fixture(scope="module")
def settings(document_server: DocumentServer) -> dict[str, Any]:
    return {"document_url": f"{document_server.server.url}/openapi.json", "base_url": document_server.server.url}


@pytest.fixture(scope="module")
def log_fields() -> list[Any]:
    """Fields logged while the document was read."""
    return []


@pytest.fixture(scope="module")
def actions(settings: dict[str, Any], github: bytes, log_fields: list[Any]) -> Mapping[str, Action]:
    with open_context(seconds=300) as ctx:
        listening = replace(ctx, sink=lambda level, message, fields: log_fields.append(fields))
        return {each.name: each for each in import_actions(github, settings, listening)}


def test_the_whole_document_is_imported_within_a_memory_limit(
    actions: Mapping[str, Action], github: bytes, log_fields: list[Any]
) -> None:
    paths = json.loads(github)["paths"]
    assert len(actions) == sum(method in METHODS for item in paths.values() for method in item) > 1000
    check_discovered(Installed(OpenapiConnector, "test"), list(actions.values()))
    assert [each["memory_kb"] < 250 * 1024 for each in log_fields] == [True]
    assert actions["issues_create"].effect == "write"
    assert actions["issues_create"].input["required"] == ["owner", "repo", "body"]
    assert actions["repos_list_for_org"].plan["paging"]["kind"] == "link"


def test_every_operation_is_executed_as_the_document_describes_it(
    actions: Mapping[str, Action], settings: dict[str, Any], document_server: DocumentServer
) -> None:
    document_server.violations.clear()
    connector = OpenapiConnector(settings)
    wrong: dict[str, Any] = {}
    done = 0
    with open_context(seconds=300) as ctx:
        for name, action in actions.items():
            assert schema_problems(action.input, dict(action.sample)) == [], name
            if not document_server.has_success(action):
                continue
            output = connector.perform(action, action.sample, ctx)
            done += 1
            if problems := schema_problems(action.output, output):
                wrong[name] = problems
    assert document_server.violations == []
    assert set(wrong) == CONTRADICTIONS
    assert done > 1200


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> Iterator[World]:
    """The appliance with GitHub as an integration whose settings were tested."""
    with open_world(f"sqlite:///{tmp_path_factory.mktemp('github')}/gos.db") as world:
        world.integrations.create_integration(world.one, "github", IntegrationSpec("openapi", settings))
        check = world.integrations.test_integration(world.one, "github")
        assert check.ok, check.message
        assert re.search(r"It offers 1\d\d\d actions\.$", check.message)
        yield world


def test_its_actions_are_stored_searched_and_executed(imported: World) -> None:
    page = imported.integrations.search_actions(imported.one, "github", "list branches", PageRequest(5, count=True))
    assert "repos_list_branches" in [each.name for each in page.items]
    assert page.total is not None
    assert 1 <= page.total < 20
    request = ActionRequest("github", "issues_create", {"owner": "ann", "repo": "r", "body": {"title": "It breaks"}})
    preview = imported.executor.execute(imported.one, replace(request, mode="preview")).preview
    assert preview is not None
    [previewed] = preview.requests
    assert (previewed.method, previewed.url.partition("/repos/")[2]) == ("POST", "ann/r/issues")
    assert json.loads(previewed.body) == {"title": "It breaks"}
    output = imported.executor.execute(imported.one, request).output
    assert (output["status"], output["body"]["title"]) == (201, "Found a bug")
    with pytest.raises(ValidationFailed) as caught:
        imported.executor.execute(imported.one, ActionRequest("github", "issues_create", {"owner": "ann", "repo": "r"}))
    assert [each.pointer for each in caught.value.details] == ["/input/body"]
    with pytest.raises(ValidationFailed, match="searches them"):
        imported.executor.execute(imported.one, ActionRequest("github", "issues_make", {}))


def test_types_cover_the_granted_actions(imported: World) -> None:
    def declared(granted: Any) -> str:
        steps = [{"id": "a", "code": {"language": "javascript", "source": "export default () => 1"}}]
        definition = parse_definition({"id": "p", "grants": {"integrations": {"github": granted}}, "steps": steps}, {})
        return declare_process(
            definition,
            load_dependencies(imported.one, imported.integrations.find_actions, NoAgents().output_of, References(["github"])),
        )

    few = declared(["issues_create", "repos_get", "pulls_list"])
    assert "issues_create: { input: { " in few
    assert "/** Create an issue (POST /repos/{owner}/{repo}/issues) */" in few
    assert "repos_list_branches" not in few
    every = declared("*")
    assert "repos_list_branches: { input: any; output: any };" in every
    assert len(every) < 200_000
