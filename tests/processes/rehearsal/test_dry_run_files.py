"""Documents in dry runs: reads are real, writes are only recorded; and what a retry of such steps repeats."""

from typing import Any

from appliance.core.database import db
from appliance.documents import NewDocument
from appliance.processes.rehearsal.dry_run import DryRunRequest
from tests.processes.world import World, rule

from .test_dry_run import by_step, describe_calls


def steps(document: str) -> list[dict[str, Any]]:
    return [
        {"id": "rows", "file": {"operation": "parse", "document": document, "format": "csv"}},
        {"id": "load", "file": {"operation": "parse", "document": document, "format": "csv", "to": {"collection": "marks"}}},
        {"id": "made", "file": {"operation": "write", "format": "json", "data": "= steps.rows.rows", "name": "made.json"}},
        rule("end", "= [steps.rows.rows.length, steps.load, steps.made.document]"),
    ]


def test_a_document_is_read_and_none_is_made(world: World) -> None:
    documents = world.flow.runner.tools.documents
    document = documents.store_document(world.scope, NewDocument("marks.csv"), b"what,note\na,1\nb,2\n").id
    process = world.publish(steps(document))
    count = db.rows("SELECT count(*) FROM document")
    test_run = world.flow.test_process(world.scope, process, DryRunRequest())
    assert (test_run.status, test_run.output) == ("succeeded", [2, None, {"id": "doc_test", "name": "made.json"}]), test_run.error
    expected = [("rows", "file.parse", "live"), ("load", "file.load", "default"), ("made", "file.write", "default")]
    assert describe_calls(test_run.calls) == expected
    assert [call.step for call in test_run.effects] == ["load", "made"]
    assert (by_step(test_run)["rows"].result_source, by_step(test_run)["made"].result_source) == ("executed", "mocked")
    mocked = world.flow.test_process(
        world.scope, process, DryRunRequest(step="rows", mocks={"file.parse": {"output": {"rows": []}}})
    )
    assert (mocked.output, mocked.effects) == ({"rows": []}, [])
    assert (db.rows("SELECT count(*) FROM document"), world.marks()) == (count, [])
    row = world.finish(world.start(process))
    assert row.status == "succeeded", row.error
    plan = world.flow.plan_retry(world.scope, row.id, start_from="start")
    assert [effect.sentence for effect in plan.effects] == [
        "load would write the rows of its file again to marks.", "made would create its documents again.",
    ]  # fmt: skip
