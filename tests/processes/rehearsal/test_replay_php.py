"""Replay of PHP steps: the same clock values, random numbers and answers."""

from typing import Any

import pytest

from tests.processes.world import World, rule

from .replaying import change, first, replay, results

WHOLE = """
  $first = microtime(true);
  $dice = [random_int(1, 1000000), mt_rand(), bin2hex(random_bytes(4))];
  $made = $api->datapool->create('marks', ['what' => 'a', 'note' => (string) $dice[0]]);
  $rung = $api->integrations->execute('bell', 'ring', ['first' => $first]);
  try { $api->datapool->find('none-such', 'x'); } catch (\\Throwable $error) { $missing = $error->getMessage(); }
  return [$first, $dice, $made['id'], $rung, $missing, $api->now(), hrtime(true) > 0, uniqid(), time()];
"""


def php(step_id: str, body: str, **more: Any) -> dict[str, Any]:
    return {"id": step_id, "code": {"language": "php", "source": f"<?php return function ($input, $api) {{ {body} }};"}, **more}


def test_a_php_step_is_replayed_to_the_same(world: World) -> None:
    row = world.run([php("a", WHOLE, input="= {at: Date.now()}"), rule("b", "= steps.a")])
    assert row.status == "succeeded", row.error
    report = replay(world, row)
    assert report.is_identical, report.first


@pytest.mark.parametrize(
    "body",
    [
        "throw new DomainException('at ' . microtime(true) . mt_rand());",
        "$api->integrations->execute('bell', 'ring', ['reject' => true]);",
        "$api->datapool->create('marks', ['what' => 'x']); while (true) {}",
        "return str_repeat('x', 2000000);",
        "exit(3);",
    ],
)
def test_a_php_step_fails_in_the_same_way(world: World, body: str) -> None:
    limits = {"limits": {"time": "600ms"}} if "while" in body else {}
    row = world.run([php("a", body, **limits)])
    assert row.status == "failed"
    report = replay(world, row)
    assert report.is_identical, report.first


def test_another_php_code_shows_its_first_other_call(world: World) -> None:
    process = world.publish([php("a", "$api->datapool->create('marks', ['what' => 'a']); return 1;")])
    row = world.finish(world.start(process))
    change(world, process, [php("a", "$api->datapool->create('marks', ['what' => 'b']); return 1;")])
    report = replay(world, row, version=2)
    assert results(report) == {"a": "diverged"}
    divergence = first(report).divergence
    assert divergence is not None
    assert (divergence.call, divergence.replayed["args"][1]) == (1, {"what": "b"})
