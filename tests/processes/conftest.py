"""A sandbox for the session, a database and a started flow for each module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core.database.changes import read_state
from appliance.core.json_schema import Schema, compile_schema
from appliance.core.scheduling import Scheduler
from appliance.processes.definitions import definition
from appliance.processes.definitions.schema import process_schema
from appliance.sandbox import Pool, Settings
from tests.llm.provider import Provider

from .world import Bell, World, make_world, open_database


@pytest.fixture(scope="session")
def editors_schema() -> Schema:
    """The schema that editors are given, compiled once: that takes longer than most tests."""
    return compile_schema(process_schema())


@pytest.fixture(autouse=True)
def published_schema(editors_schema: Schema, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every definition that the parser accepts in a test is also valid by the published schema for editors."""
    schema, parse = editors_schema, definition._Parser.process
    schema_problems: list[object] = []

    def watch(parser: definition._Parser, data: object) -> definition.Definition | None:
        parsed = parse(parser, data)
        if parsed is not None and not parser.problems:
            schema_problems.extend(schema.problems(data))
        return parsed

    monkeypatch.setattr(definition._Parser, "process", watch)
    yield
    assert schema_problems == [], "add what the parser accepts to processes/schema.py or schema_kinds.py, and to every_member.yaml"


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Pool]:
    pool = Pool(Settings(processes=2, slots=4))
    pool.start()
    yield pool
    pool.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("processes")
    with open_database(path):
        yield path


@pytest.fixture(scope="session")
def model_server() -> Iterator[Provider]:
    server = Provider()
    yield server
    server.close()


@pytest.fixture
def provider(model_server: Provider) -> Provider:
    """A language model server without any request so far."""
    model_server.forget()
    return model_server


@pytest.fixture(scope="module")
def flow_world(folder: Path, sandbox: Pool) -> Iterator[World]:
    world = make_world(folder, sandbox)
    world.flow.start(Scheduler(read_state))
    yield world
    world.flow.stop(5)
    world.presence.close()


@pytest.fixture
def world(flow_world: World) -> World:
    """The running flow, with an empty collection and a bell that has not been rung."""
    flow_world.wipe()
    Bell.forget()
    return flow_world


@pytest.fixture
def idle_world(folder: Path, sandbox: Pool) -> Iterator[World]:
    """A flow that is not started: the test drives it."""
    Bell.forget()
    world = make_world(folder, sandbox, crashes=True)
    world.wipe()
    yield world
    world.runner.stop(5)
    world.presence.close()
