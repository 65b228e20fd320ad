"""Documents in connector calls: with the access of the caller, in chunks, until the deadline."""

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
from tests.integrations.world import World, open_world, queue_task

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
        document = ctx.documents.open(input["id"])
        document_id = ctx.documents.create(input.get("name", document.name), document.chunks(), document.content_type)
        return {"made": document_id, "name": document.name, "size": document.size, "content_type": document.content_type}


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
    integrations = Integrations(lambda: registry, world.sealer, lambda scope, name: "", world.integrations.calls)
    integrations.create_integration(world.one, "copy", IntegrationSpec("copier", {}))
    executor = GovernedExecutor(
        integrations,
        make_governor(world.sealer),
        Instance("instance-1", lambda *task: queue_task(world.queued, task)),
        CallDocumentsFactory(files, 256 * MB),
    )
    yield executor
    executor.stop()


def request(document_id: str, access: frozenset[str] = BOTH, **options: Any) -> ActionRequest:
    payload = {"id": document_id, **options.pop("payload", {})}
    return ActionRequest("copy", "copy", payload, documents=access, **options)


def test_two_hundred_megabytes_pass_in_flat_memory(world: World, files: Documents, executor: GovernedExecutor) -> None:
    big = files.store_document(world.one, NewDocument("big.bin"), (PIECE for _ in range(200 * MB // len(PIECE))))
    tracemalloc.start()
    output = executor.execute(world.one, request(big.id, seconds=300)).output
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    copied = files.get_document(world.one, output["made"])
    assert (copied.size, copied.sha256) == (200 * MB, big.sha256)
    assert peak < 8 * MB, f"{peak / MB:.1f} MB"


def test_documents_keep_their_name_size_and_type(world: World, files: Documents, executor: GovernedExecutor) -> None:
    document = files.store_document(world.one, NewDocument("a.csv", "text/csv"), b"a;b\r\n")
    output = executor.execute(world.one, request(document.id, payload={"name": "b/../c.csv"})).output
    assert (output["name"], output["size"], output["content_type"]) == ("a.csv", 5, "text/csv")
    copied = files.get_document(world.one, output["made"])
    assert (copied.media_type, copied.created_by) == ("text/csv", world.one.actor)
    assert "/" not in copied.name


@pytest.mark.parametrize(("access", "missing"), [(frozenset(), "read"), (frozenset({"read"}), "write")])
def test_access_the_caller_lacks_is_refused(
    world: World, files: Documents, executor: GovernedExecutor, access: frozenset[str], missing: str
) -> None:
    document = files.store_document(world.one, NewDocument("a.txt"), b"a")
    with pytest.raises(ActionFailed, match=f"may not {missing} documents") as caught:
        executor.execute(world.one, request(document.id, access))
    assert (caught.value.error_class, caught.value.outcome) == ("config_error", "not_done")


def test_a_document_of_another_tenant_is_not_found(world: World, files: Documents, executor: GovernedExecutor) -> None:
    foreign = files.store_document(world.two, NewDocument("a.txt"), b"a")
    for unknown in (foreign.id, "doc_unknown", ""):
        with pytest.raises(ActionFailed, match="There is no document"):
            executor.execute(world.one, request(unknown))


def test_a_queued_call_keeps_the_access_of_its_caller(world: World, files: Documents, executor: GovernedExecutor) -> None:
    document = files.store_document(world.one, NewDocument("a.txt"), b"a")
    for access, status in ((BOTH, "succeeded"), (frozenset({"read"}), "failed")):
        call_id = executor.enqueue(world.one, request(document.id, access, payload={"name": status}))
        executor.run_queued(world.one, call_id)
        assert history.get_call(world.one, "copy", call_id).status == status


def test_a_check_reaches_no_documents(world: World, executor: GovernedExecutor) -> None:
    integrations = executor._integrations
    assert "documents are available only to actions" in integrations.test_integration(world.one, "copy").message


def test_time_and_size_limits_hold(world: World, files: Documents) -> None:
    document = files.store_document(world.one, NewDocument("a.txt"), b"a" * 1000)
    expired = CallDocumentsFactory(files, 100).of_call(world.one, BOTH).until(clock.monotonic() - 1)
    with pytest.raises(TransientError, match="ran out of time"):
        b"".join(expired.open(document.id).chunks())
    with pytest.raises(TransientError, match="ran out of time"):
        expired.create("b.txt", [b"b"])
    small = CallDocumentsFactory(files, 100).of_call(world.one, BOTH).until(clock.monotonic() + 60)
    with pytest.raises(Rejected, match="exceeds the maximum"):
        small.create("b.txt", [b"b" * 60, b"b" * 60])
    with pytest.raises(ConfigError):
        small.open("doc_none")
