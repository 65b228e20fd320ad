"""Formats with real worker processes."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.formats import Bounds, FormatFailed, Formats, Settings, Work

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Result:
    """The facts and the whole content of an answer."""

    facts: dict[str, Any]
    content: bytes

    @property
    def records(self) -> list[Any]:
        return [json.loads(line) for line in self.content.splitlines()]


Perform = Callable[..., Result]


@pytest.fixture(scope="session")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Formats]:
    formats = Formats(Settings(tmp_path_factory.mktemp("formats"), processes=2, queue_seconds=60, first_user=65_500, files=100))
    yield formats
    formats.stop()


@pytest.fixture(scope="session")
def perform(formats: Formats) -> Perform:
    """Performs an operation on contents passed as bytes or paths."""

    def go(operation: str, *contents: bytes | Path, bounds: Bounds | None = None, **options: Any) -> Result:
        with ExitStack() as stack:
            inputs = [stack.enter_context(_opened(each)) for each in contents]
            work = Work(operation, options, inputs)
            answer = stack.enter_context(formats.perform(work, bounds or Bounds(60, 256, 32 * MEGABYTE)))
            return Result(dict(answer.facts), answer.output.read())

    return go


def _opened(content: bytes | Path) -> Any:
    if isinstance(content, Path):
        return content.open("rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
    file.write(content)
    file.flush()
    return file


@pytest.fixture
def failure_of(perform: Perform) -> Callable[..., FormatFailed]:
    """Performs an operation that must fail, and returns its error."""

    def go(operation: str, *contents: bytes | Path, **options: Any) -> FormatFailed:
        with pytest.raises(FormatFailed) as caught:
            perform(operation, *contents, **options)
        return caught.value

    return go
