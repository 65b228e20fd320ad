"""What marks a run as having read content from outside."""

import pytest

from appliance.governance.executor.redaction import redact
from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import Subject
from appliance.governance.taint import MAX_SOURCES, add_taint, source_of


@pytest.mark.parametrize(
    ("tool", "given", "source"),
    [
        ("read_document", {"document_id": "doc_1"}, "document:doc_1"), ("search_documents", {"text": "x"}, "documents"),
        ("query_entities", {"collection": "orders"}, "collection:orders"), ("read_logs", {}, "logs"),
        ("get_execution", {"execution_id": "exe_1"}, "execution:exe_1"), ("invented_tomorrow", {}, "tool:invented_tomorrow"),
        ("list_tenant_skills", {}, ""), ("get_human_input", {"request_id": "apr_1"}, ""), ("execute_process", {}, ""),
    ],
)  # fmt: skip
def test_every_tool_says_where_its_content_comes_from(tool: str, given: dict[str, str], source: str) -> None:
    assert source_of(ToolAction(tool, "read", given)) == source


def test_what_an_execution_answers_is_from_outside_and_that_it_began_is_not() -> None:
    action = ToolAction("execute_process", "write", {"process_id": "orders", "wait": 5})
    begun = {"execution_id": "exe_1", "status": "queued", "input": {"a": 1}, "output": None}
    assert source_of(action, begun) == ""
    cases: list[dict[str, object]]
    cases = [{"output": ""}, {"error": {"code": "x", "message": "y"}}, {"waiting_for": {}}, {"aftermath": {}}]
    for told in cases:
        assert source_of(action, {**begun, **told}) == "execution:exe_1"


def test_whatever_an_integration_answers_is_from_outside() -> None:
    assert source_of(ToolAction("execute_tenant_integration", "write", {}, "erp", "create")) == "integration:erp"


def test_a_skill_is_the_tenants_own_only_once_it_is_trusted() -> None:
    action = ToolAction("load_tenant_skill", "read", {"name": "orders"})
    assert source_of(action, {"trust": "trusted"}) == ""
    for result in ({"trust": "untrusted"}, {}, None):
        assert source_of(action, result) == "skill:orders"


def test_a_list_of_skills_is_from_outside_when_it_describes_one_that_nobody_trusts() -> None:
    action, trusted, foreign = ToolAction("list_tenant_skills", "read", {}), {"trust": "trusted"}, {"trust": "untrusted"}
    assert source_of(action, {"items": [trusted, trusted]}) == ""
    assert source_of(action, {"items": [trusted, foreign]}) == "skills"


def test_a_run_stays_tainted_by_all_it_has_read() -> None:
    clean = Subject("key:1", "agent", agent="triage")
    assert add_taint(clean, "", "") is clean
    once = add_taint(clean, "integration:erp", "", "integration:erp")
    assert once.tainted_by == ("integration:erp",)
    assert add_taint(add_taint(once, "documents"), "integration:erp").tainted_by == ("integration:erp", "documents")
    much = add_taint(clean, *(f"document:{number}" for number in range(100)))
    assert (much.is_tainted, len(much.tainted_by)) == (True, MAX_SOURCES)


def test_what_is_hidden_is_gone_wherever_it_is() -> None:
    value = {"rows": [{"name": "a", "iban": 1}, {"iban": 2}], "a/b": {"~": 1}, "kept": [1, 2]}
    assert redact(value, ["/rows/*/iban", "/a~1b/~0", "/nowhere/0", "/kept/1"]) == {
        "rows": [{"name": "a"}, {}], "a/b": {}, "kept": [1, None],
    }  # fmt: skip
    assert redact(value, ["/*"]) == {}
    assert redact({"rows": ["a", "b", "c"]}, ["/rows/0", "/rows/1"]) == {"rows": [None, None, "c"]}
    assert redact({"rows": [{"n": 1}, {"n": 2, "m": 3}]}, ["/rows/0", "/rows/1/n"]) == {"rows": [None, {"m": 3}]}
    assert redact({"rows": ["a", "b"]}, ["/rows/*", "/rows/0"]) == {"rows": []}
    assert value["rows"][0]["iban"] == 1  # type: ignore[index]
