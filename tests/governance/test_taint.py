"""What marks a run as having read content from outside."""

import pytest

from appliance.governance.executor.redaction import redact
from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import Subject
from appliance.governance.taint import MAX_SOURCES, add_taint, source_of


@pytest.mark.parametrize(
    ("tool", "payload", "source"),
    [
        ("read_document", {"document_id": "doc_1"}, "document:doc_1"), ("search_documents", {"text": "x"}, "documents"),
        ("query_entities", {"collection": "orders"}, "collection:orders"), ("read_logs", {}, "logs"),
        ("get_execution", {"execution_id": "exe_1"}, "execution:exe_1"), ("invented_tomorrow", {}, "tool:invented_tomorrow"),
        ("list_tenant_skills", {}, ""), ("get_human_input", {"request_id": "apr_1"}, ""), ("execute_process", {}, ""),
    ],
)  # fmt: skip
def test_every_tool_says_where_its_content_comes_from(tool: str, payload: dict[str, str], source: str) -> None:
    assert source_of(ToolAction(tool, "read", payload)) == source


def test_the_result_of_an_execution_is_tainted_and_its_start_is_not() -> None:
    action = ToolAction("execute_process", "write", {"process_id": "orders", "wait": 5})
    queued = {"execution_id": "exe_1", "status": "queued", "input": {"a": 1}, "output": None}
    assert source_of(action, queued) == ""
    cases: list[dict[str, object]]
    cases = [{"output": ""}, {"error": {"code": "x", "message": "y"}}, {"waiting_for": {}}, {"aftermath": {}}]
    for members in cases:
        assert source_of(action, {**queued, **members}) == "execution:exe_1"


def test_every_answer_of_an_integration_is_tainted() -> None:
    assert source_of(ToolAction("execute_tenant_integration", "write", {}, "erp", "create")) == "integration:erp"


def test_a_skill_is_tainted_until_it_is_trusted() -> None:
    action = ToolAction("load_tenant_skill", "read", {"name": "orders"})
    assert source_of(action, {"trust": "trusted"}) == ""
    for result in ({"trust": "untrusted"}, {}, None):
        assert source_of(action, result) == "skill:orders"


def test_a_list_with_an_untrusted_skill_is_tainted() -> None:
    action, trusted, foreign = ToolAction("list_tenant_skills", "read", {}), {"trust": "trusted"}, {"trust": "untrusted"}
    assert source_of(action, {"items": [trusted, trusted]}) == ""
    assert source_of(action, {"items": [trusted, foreign]}) == "skills"


def test_a_run_keeps_all_its_taint_sources() -> None:
    clean = Subject("key:1", "agent", agent="triage")
    assert add_taint(clean, "", "") is clean
    once = add_taint(clean, "integration:erp", "", "integration:erp")
    assert once.tainted_by == ("integration:erp",)
    assert add_taint(add_taint(once, "documents"), "integration:erp").tainted_by == ("integration:erp", "documents")
    much = add_taint(clean, *(f"document:{number}" for number in range(100)))
    assert (much.is_tainted, len(much.tainted_by)) == (True, MAX_SOURCES)


def test_redacted_members_are_removed_everywhere() -> None:
    value = {"rows": [{"name": "a", "iban": 1}, {"iban": 2}], "a/b": {"~": 1}, "kept": [1, 2]}
    assert redact(value, ["/rows/*/iban", "/a~1b/~0", "/nowhere/0", "/kept/1"]) == {
        "rows": [{"name": "a"}, {}], "a/b": {}, "kept": [1, None],
    }  # fmt: skip
    assert redact(value, ["/*"]) == {}
    assert redact({"rows": ["a", "b", "c"]}, ["/rows/0", "/rows/1"]) == {"rows": [None, None, "c"]}
    assert redact({"rows": [{"n": 1}, {"n": 2, "m": 3}]}, ["/rows/0", "/rows/1/n"]) == {"rows": [None, {"m": 3}]}
    assert redact({"rows": ["a", "b"]}, ["/rows/*", "/rows/0"]) == {"rows": []}
    assert value["rows"][0]["iban"] == 1  # type: ignore[index]
