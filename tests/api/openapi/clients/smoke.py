"""Calls an appliance with the generated client: `python smoke.py BASE_URL HOST KEY PROCESS COLLECTION`."""

import sys

from gos_client import AuthenticatedClient
from gos_client.api.datapool import create_entity, get_entity
from gos_client.api.processes import execute_process, list_processes
from gos_client.models import (
    CreateEntityBody,
    CreateEntityResponse,
    Error,
    ExecuteProcessBody,
    ExecutionResponse,
    GetEntityResponse,
    ProcessSummaryListResponse,
)


def main(base_url: str, host: str, key: str, process: str, collection: str) -> None:
    client = AuthenticatedClient(base_url, token=key, prefix="", auth_header_name="X-API-Key", headers={"Host": host})
    listed = list_processes.sync(client=client, limit=500)
    assert isinstance(listed, ProcessSummaryListResponse)
    assert process in [each.id for each in listed.data]
    execution = execute_process.sync(process, client=client, body=ExecuteProcessBody(), wait=30)
    assert isinstance(execution, ExecutionResponse)
    assert (execution.data.status, execution.data.process_id) == ("succeeded", process)
    created = create_entity.sync(collection, client=client, body=CreateEntityBody.from_dict({"number": "from-python", "total": 3}))
    assert isinstance(created, CreateEntityResponse)
    entity = get_entity.sync(collection, created.data["id"], client=client)
    assert isinstance(entity, GetEntityResponse)
    assert (entity.data["number"], entity.data["total"]) == ("from-python", 3)
    refused = get_entity.sync(collection, "ent_000000000000000000000", client=client)
    assert isinstance(refused, Error)
    assert (refused.error.code, refused.error.status) == ("not_found", 404)
    print("smoke test passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
