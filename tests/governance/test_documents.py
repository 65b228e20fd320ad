"""Documents in connector calls: as far as the caller may, a piece at a time, until the deadline."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.blobs import Blobs, LocalPlaces
from appliance.connectors.contract import Action, ConfigError, Connector, Context, Rejected, TransientError
from appliance.connectors.registry import Installed, Registry
from appliance.core import clock
from appliance.documents import REVISION_TABLE, Documents, NewDocument
from appliance.governance.executor.documents import CallDocumentsFactory
from appliance.governance.executor.executor import GovernedExecutor, Instance
from appliance.governance.executor.requests import ActionFailed, ActionRequest
from appliance.integrations import Integrations, IntegrationSpec, history
from tests.governance.ruling import make_governor
from tests.integrations.world import World, open_world

MB = 1 << 20
PIECE = bytes(range(256)) * 256
BOTH = frozenset({"read", "write"})


class Copier(Connector):
    """Copies a document piece by piece."""

    contract_version = 1
    name = "copier"
    title = "Copier"
    version = "1.0"
    settings_schema = {"type": "object"}  # noqa: RUF012 - a class variable of the contract
    actions = (Action("copy", "Copy a document", {"type": "object"}, {"type": "object"}, "write"),)

    def check(self, ctx: Context) -> str:
        ctx.documents.open("doc_1")
        return "never"

    def call(self, action: str, input: Any, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        found = ctx.documents.open(input["id"])
        made = ctx.documents.create(input.get("name", found.name), found.chunks(), found.content_type)
        return {"made": made, "name": found.name, "size": found.size, "content_type": found.content_type}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(f"sqlite:///{tmp_path}/gos.db") as world:
        yield world


@pytest.fixture
def files(tmp_path: Path) -> Documents:
    return Documents(Blobs(LocalPlaces(tmp_path / "blobs"), [REVISION_TABLE]))


@pytest.fixture
def executor(world: World, files: Documents) -> Iterator[GovernedExecutor]:
    registry = Registry({"copier": Installed(Copier, "test")})
    integrations = Integrations(registry, world.sealer, lambda scope, name: "", world.integrations.calls)
    integrations.create_integration(world.one, "copy", IntegrationSpec("copier", {}))
    queued = world.queued.append
    executor = GovernedExecutor(
        integrations,
        make_governor(world.sealer),
        Instance("instance-1", lambda *task: queued(task)),
        CallDocumentsFactory(files, 256 * MB),
    )
    yield executor
    executor.stop()


def request(document_id: str, access: frozenset[str] = BOTH, **more: Any) -> ActionRequest:
    given = {"id": document_id, **more.pop("given", {})}
    return ActionRequest("copy", "copy", given, documents=access, **more)


def test_two_hundred_megabytes_pass_in_flat_memory(world: World, files: Documents, executor: GovernedExecutor) -> None:
    big = files.store_document(world.one, NewDocument("big.bin"), (PIECE for _ in range(200 * MB // len(PIECE))))
    tracemalloc.start()
    output = executor.execute(world.one, request(big.id, seconds=300)).output
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    copied = files.get_document(world.one, output["made"])
    assert (copied.size, copied.sha256) == (200 * MB, big.sha256)
    assert peak < 8 * MB, f"{peak / MB:.1f} MB"


def test_what_is_read_and_made_is_told_as_it_is(world: World, files: Documents, executor: GovernedExecutor) -> None:
    made = files.store_document(world.one, NewDocument("a.csv", "text/csv"), b"a;b\r\n")
    output = executor.execute(world.one, request(made.id, given={"name": "b/../c.csv"})).output
    assert (output["name"], output["size"], output["content_type"]) == ("a.csv", 5, "text/csv")
    copied = files.get_document(world.one, output["made"])
    assert (copied.media_type, copied.created_by) == ("text/csv", world.one.actor)
    assert "/" not in copied.name


@pytest.mark.parametrize(("access", "missing"), [(frozenset(), "read"), (frozenset({"read"}), "write")])
def test_what_the_caller_may_not_do_is_refused(
    world: World, files: Documents, executor: GovernedExecutor, access: frozenset[str], missing: str
) -> None:
    made = files.store_document(world.one, NewDocument("a.txt"), b"a")
    with pytest.raises(ActionFailed, match=f"may not {missing} documents") as caught:
        executor.execute(world.one, request(made.id, access))
    assert (caught.value.error_class, caught.value.outcome) == ("config_error", "not_done")


def test_another_tenants_document_looks_like_none(world: World, files: Documents, executor: GovernedExecutor) -> None:
    theirs = files.store_document(world.two, NewDocument("a.txt"), b"a")
    for unknown in (theirs.id, "doc_unknown", ""):
        with pytest.raises(ActionFailed, match="There is no document"):
            executor.execute(world.one, request(unknown))


def test_a_queued_call_keeps_what_its_caller_may(world: World, files: Documents, executor: GovernedExecutor) -> None:
    made = files.store_document(world.one, NewDocument("a.txt"), b"a")
    for access, status in ((BOTH, "succeeded"), (frozenset({"read"}), "failed")):
        call_id = executor.enqueue(world.one, request(made.id, access, given={"name": status}))
        executor.run_queued(world.one, call_id)
        assert history.get_call(world.one, "copy", call_id).status == status


def test_a_check_reaches_no_documents(world: World, executor: GovernedExecutor) -> None:
    integrations = executor._integrations
    assert "documents are available only to actions" in integrations.test_integration(world.one, "copy").message


def test_time_and_size_are_kept_to(world: World, files: Documents) -> None:
    made = files.store_document(world.one, NewDocument("a.txt"), b"a" * 1000)
    late = CallDocumentsFactory(files, 100).of_call(world.one, BOTH).until(clock.monotonic() - 1)
    with pytest.raises(TransientError, match="ran out of time"):
        b"".join(late.open(made.id).chunks())
    with pytest.raises(TransientError, match="ran out of time"):
        late.create("b.txt", [b"b"])
    small = CallDocumentsFactory(files, 100).of_call(world.one, BOTH).until(clock.monotonic() + 60)
    with pytest.raises(Rejected, match="exceeds the maximum"):
        small.create("b.txt", [b"b" * 60, b"b" * 60])
    with pytest.raises(ConfigError):
        small.open("doc_none")
