"""What differs between two versions: the process's own members, every step by its id, and files line by line."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from appliance.processes.definitions import version_diff
from appliance.processes.definitions.sequence_diff import Part, WorkBudget, find_parts
from appliance.processes.definitions.version_diff import VersionDiff, compare_versions
from tests.processes.test_api import BASE, data, error
from tests.processes.world import rule


def diff(old: Any, new: Any, old_files: Any = None, new_files: Any = None) -> VersionDiff:
    return compare_versions(({"steps": old}, old_files or {}), ({"steps": new}, new_files or {}))


def summarize(diff_: VersionDiff) -> list[tuple[str, str, bool, list[str]]]:
    return [(change.step, change.happened, change.moved, [each.path for each in change.changes]) for change in diff_.steps]


A, B, C = (rule(name, "= 1") for name in "abc")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([A, B], [A, B], []),
        ([A, B], [A, C, B], [("c", "added", False, [""])]),
        ([A, B, C], [A, C], [("b", "removed", False, [""])]),
        ([A, B, C], [C, A, B], [("c", "changed", True, [])]),
        ([A], [{**A, "when": "= 2"}], [("a", "changed", False, ["/when"])]),
        ([A, {"id": "p", "parallel": {"x": [B]}}], [{"id": "p", "parallel": {"x": [B, A]}}], [("a", "changed", True, [])]),
        ([{"id": "p", "parallel": {"x": [B]}}], [{"id": "p", "parallel": {"x": [B], "y": [C]}}],
         [("p", "changed", False, ["/parallel/1"]), ("c", "added", False, [""])]),
        ([{"id": "e", "for_each": {"items": [1], "steps": [A]}}],
         [{"id": "e", "for_each": {"items": [2], "steps": [{**A, "x": 1}]}}],
         [("e", "changed", False, ["/for_each/items/0"]), ("a", "changed", False, ["/x"])]),
        ([{"id": "b", "branch": [{"when": "= 1", "steps": [A]}]}], [{"id": "b", "branch": [{"when": "= 2", "steps": [A]}]}],
         [("b", "changed", False, ["/branch/0/when"])]),
        (None, [A, 5, {"id": 7}, {"id": "p", "parallel": 3}, {"id": "q", "branch": [1, {"steps": 2}]}],
         [("a", "added", False, [""]), ("p", "added", False, [""]), ("q", "added", False, [""])]),
    ],
)  # fmt: skip
def test_steps_are_compared_by_their_ids(old: Any, new: Any, expected: Any) -> None:
    assert summarize(diff(old, new)) == expected


def test_files_are_compared_line_by_line() -> None:
    diffs = diff([], [], {"a.ts": "one\ntwo\n", "gone.ts": "x\n", "same": "1"}, {"a.ts": "one\n2", "new.ts": "y\n", "same": "1"})
    assert {change.path: (change.happened, change.diff) for change in diffs.files} == {
        "a.ts": ("changed", "--- a/a.ts\n+++ b/a.ts\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n\\ No newline at end of file\n"),
        "gone.ts": ("removed", "--- a/gone.ts\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"),
        "new.ts": ("added", "--- /dev/null\n+++ b/new.ts\n@@ -0,0 +1 @@\n+y\n"),
    }


def test_files_made_to_be_slow_are_not_compared_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is taken from what all files have together; without any left they are told line by line, or as replaced."""
    left: list[int] = []

    def count_work(old: Sequence[str], new: Sequence[str], work: WorkBudget) -> list[Part]:
        parts = find_parts(old, new, work)
        left.append(work.remaining)
        return parts

    monkeypatch.setattr(version_diff, "find_parts", count_work)
    old, new = "\n".join(["a", "b"] * 300), "\n".join(["a", "c"] * 300)
    diffs = diff([], [], {str(n): old for n in range(50)}, {str(n): new for n in range(50)})
    assert [change.happened for change in diffs.files] == ["changed"] * 50
    assert left == sorted(left, reverse=True)
    assert 0 <= left[-1] < left[0] < version_diff.MAX_WORK
    assert all(change.diff and change.diff.count("\n+c") == 300 for change in diffs.files)


def test_versions_over_http(acme: httpx.Client, globex: httpx.Client) -> None:
    address = f"{BASE}/versions-over-http"
    for number in (1, 2):
        steps = [rule("a", f"= {number}"), rule("b", "= 1")][: number]
        body = {"definition": {"steps": steps, "name": "N"}, "files": {"rules/x.json": f"{number}\n"}}
        assert acme.put(address, json=body).is_success
        data(acme.post(f"{address}/publish", json={}))
    assert acme.put(address, json={"steps": [rule("a", "= 3")], "name": "M"}).is_success
    two = data(acme.get(f"{address}/versions/2/diff"))
    assert (two["from"], two["to"], two["identical"], two["changes"]) == (1, 2, False, [])
    change = {"op": "replace", "path": "/rule/expression", "from": "= 1", "to": "= 2"}
    assert two["steps"][0] == {"step": "a", "happened": "changed", "moved": False, "changes": [change]}
    assert (two["steps"][1]["step"], two["files"][0]["happened"]) == ("b", "changed")
    assert data(acme.get(f"{address}/versions/1/diff?against=2")) == two
    draft = data(acme.get(f"{address}/versions/2/diff?against=draft"))
    assert (draft["from"], draft["to"], [each["path"] for each in draft["changes"]]) == (2, "draft", ["/name"])
    assert [(step["step"], step["happened"]) for step in draft["steps"]] == [("a", "changed"), ("b", "removed")]
    first = data(acme.get(f"{address}/versions/1/diff"))
    assert (first["from"], first["to"], first["steps"][0]["happened"]) == (0, 1, "added")
    assert error(acme.get(f"{address}/versions/2/diff?against=2"), 422)["details"][0]["pointer"] == "/against"
    assert error(acme.get(f"{address}/versions/2/diff?against=9"), 404)["code"] == "not_found"
    assert error(globex.get(f"{address}/versions/2/diff"), 404)["code"] == "not_found"
    data(acme.post(f"{address}/rollback", json={"version": 1}))
    assert data(acme.get(address))["published_version"] == 1, "and a rollback makes the older one execute"
