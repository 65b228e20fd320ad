"""Memory that a step has released is not part of its snapshot."""

from __future__ import annotations

from collections.abc import Callable

import zstandard

from appliance.sandbox import HostCall, Pool, Program, Settled
from appliance.sandbox.worker.snapshot import ParsedSnapshot
from tests.sandbox.sleepy import SleepyHost, answers, finished, suspended

MakeProgram = Callable[..., Program]


class FetchingHost(SleepyHost):
    """Answers what is fetched with many rows that name themselves."""

    def submit(self, call: HostCall, clock: list[int]) -> None:
        super().submit(call, clock)
        if call.method == "datapool.find":
            rows = [{"name": f"dropped-{number}-{number * 7919}"} for number in range(2000)]
            self._answers.append(Settled(call.id, True, rows))


def test_almost_nothing_that_a_step_released_is_stored(pool: Pool, make_program: MakeProgram) -> None:
    """Of about 6,000 copies; what lies in gaps that the allocator does not hand out remains."""
    program = make_program("""export default async function (input, api) {
      let rows = await api.datapool.find('all', 1);
      const kept = Array.from({length: 40}, (_, k) => 'kept-' + k), count = rows.length;
      rows = null;
      await api.human.request({}); return [count, kept.length] }""")
    snapshot = suspended(pool.run(program, None, FetchingHost()))
    stored = zstandard.ZstdDecompressor().decompress(ParsedSnapshot.parse(snapshot.data).frame)
    # What lies in gaps that the template had already is stored as the difference to what lay there.
    assert stored.count(b"kept-") >= 10
    assert stored.count(b"dropped-") < 200
    assert finished(pool.run(program, None, SleepyHost(*answers(snapshot, 1)), resume=snapshot)) == [2000, 40]


def test_sleep_itself_needs_no_memory(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("""export default async function (input, api) {
      for (let k = 0; k < 40; k++) { const rows = Array(5000).fill(k).join(); await api.human.request(rows.length) } }""")
    outcome = pool.run(program, None, SleepyHost())
    sizes = []
    while outcome.snapshot is not None:
        sizes.append(outcome.memory_bytes)
        outcome = pool.run(program, None, SleepyHost(*answers(outcome.snapshot, 1)), resume=outcome.snapshot)
    assert len(sizes) == 40
    assert sizes[-1] == sizes[5]
