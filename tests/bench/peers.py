"""The same step outside the sandbox: in a fresh `node -e`, a fresh `php -n -r`, and a warm node process."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NODE_STEP = (
    "const input = JSON.parse(process.argv[1]);"
    "console.log(JSON.stringify({total: input.lines.reduce((sum, line) => sum + line.n * line.price, 0)}))"
)
PHP_STEP = (
    "$input = json_decode($argv[1], true); $total = 0;"
    "foreach ($input['lines'] as $line) { $total += $line['n'] * $line['price']; } echo json_encode(['total' => $total]);"
)
# One line in, one line out; optionally with a new context for each step, the closest that node has to an instance.
WARM_NODE = """
const vm = require('vm'), fresh = process.argv[1] === 'fresh';
const source = '(input) => ({total: input.lines.reduce((sum, line) => sum + line.n * line.price, 0)})';
const script = new vm.Script(source), shared = script.runInThisContext();
require('readline').createInterface({input: process.stdin}).on('line', (line) => {
  const step = fresh ? script.runInNewContext({}) : shared;
  process.stdout.write(JSON.stringify(step(JSON.parse(line))) + '\\n');
});
"""


def fresh_node(order: bytes) -> Callable[[], object] | None:
    """Runs the step in a node of its own; None when there is no node."""
    return _command("node", "-e", NODE_STEP, order.decode())


def fresh_php(order: bytes) -> Callable[[], object] | None:
    """Runs the step in a php of its own, without php.ini; None when there is no php."""
    return _command("php", "-n", "-r", PHP_STEP, order.decode())


def _command(name: str, *arguments: str) -> Callable[[], object] | None:
    path = shutil.which(name)
    if path is None:
        return None
    return lambda: subprocess.run([path, *arguments], capture_output=True, check=True)


@contextmanager
def warm_node(order: bytes, *, fresh: bool) -> Iterator[Callable[[], object] | None]:
    """Runs the step in one node that stays; None when there is no node."""
    path = shutil.which("node")
    if path is None:
        yield None
        return
    command = [path, "-e", WARM_NODE, "fresh" if fresh else "shared"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as node:
        stdin, stdout = node.stdin, node.stdout
        assert stdin is not None
        assert stdout is not None

        def run_step() -> None:
            stdin.write(order + b"\n")
            if not stdout.readline().startswith(b'{"total"'):
                raise RuntimeError("node gave no answer")

        yield run_step
        stdin.close()
