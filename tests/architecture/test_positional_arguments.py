"""A call names its arguments: at most six are positional."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import offences_in, product_files, tree_of

MOST = 6
VARIADIC = {
    "_STAT.pack", "_bind", "cv2.putText", "element", "in_thread", "native.define_function", "partial", "run", "self.call",
}  # fmt: skip
"""Functions that take any number of arguments and pass them on, or whose parameters have no names."""
HYPERCORN = ("appliance/sites/front/hypercorn_adapter.py", "HTTPStream")  # as the library itself calls it


def find_long_calls(path: Path, tree: ast.AST | None = None) -> Iterator[str]:
    for node in ast.walk(tree or tree_of(path)):
        if isinstance(node, ast.Call) and len(node.args) > MOST:
            name = ast.unparse(node.func)
            if name not in VARIADIC and not (name == HYPERCORN[1] and path.as_posix().endswith(HYPERCORN[0])):
                yield f"line {node.lineno}: {name} has {len(node.args)} positional arguments; name those after the third"


def test_no_call_has_more_than_six_positional_arguments() -> None:
    assert offences_in(product_files(), find_long_calls) == {}


def test_a_seventh_positional_argument_is_an_offence() -> None:
    calls = ["Claim(1, 2, 3, 4, 5, 6)", "Claim(1, 2, 3, 4, 5, 6, 7)", "Claim(1, 2, 3, 4, 5, 6, g=7)"]
    calls.append("in_thread(1, 2, 3, 4, 5, 6, 7)")
    offences = list(find_long_calls(Path("any.py"), ast.parse("\n".join(calls))))
    assert offences == ["line 2: Claim has 7 positional arguments; name those after the third"]
