"""A rolling restart behind a proxy: every request is answered, and every write that was answered is there once."""

import ssl
import threading
from collections import Counter
from http.client import HTTPException, HTTPSConnection
from typing import Any

import pytest

from tests.cluster.conftest import BASE, Behind
from tests.cluster.proxies import Proxy

SENDERS = 4
AFTER = 10  # requests of each sender after the last restart


class Connection(HTTPSConnection):
    """A connection to the proxy of this machine, under the name of a tenant; kept alive until an error."""

    def __init__(self, proxy: Proxy, context: ssl.SSLContext) -> None:
        super().__init__(f"acme.{BASE}", proxy.port, timeout=60, context=context)
        self._context_of_names = context

    def connect(self) -> None:
        name, self.host = self.host, "127.0.0.1"
        try:
            super(HTTPSConnection, self).connect()
        finally:
            self.host = name
        self.sock = self._context_of_names.wrap_socket(self.sock, server_hostname=name)


class Sender(threading.Thread):
    """Reads and writes in turn until it is told to stop; one in two connections is kept alive."""

    def __init__(self, behind: Behind, name: str, *, keeps: bool) -> None:
        super().__init__(daemon=True)
        self._behind, self._sender, self._keeps = behind, name, keeps
        self._context = behind.proxy.trust()
        self.stopping = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []
        self.written: list[str] = []
        self.count = 0

    def run(self) -> None:
        connection = Connection(self._behind.proxy, self._context)
        while not self.stopping.is_set():
            self._send(connection)
            self.count += 1
            if not self._keeps:
                connection.close()
        connection.close()

    def _send(self, connection: Connection) -> None:
        run = f"{self._sender}-{self.count}"
        headers = {"X-API-Key": self._behind.group.key, "Content-Type": "application/json"}
        try:
            if self.count % 2:
                connection.request("GET", "/api/v1/processes", headers=headers)
            else:
                connection.request("POST", "/api/v1/datapool/marks/entities", f'{{"run": "{run}", "what": "rolling"}}', headers)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, HTTPException) as error:
            self.failures.append(f"{run}: {error!r}")
            connection.close()
            return
        self.statuses[answer.status] += 1
        if answer.status == 201:
            self.written.append(run)
        elif answer.status == 503 and answer.getheader("Retry-After"):
            return  # documented
        elif answer.status != 200:
            self.failures.append(f"{run}: {answer.status} {body[:300]!r}")


def wait_for(senders: list[Sender], more: int) -> None:
    """Return once each sender has sent so many more requests."""
    goals = [(each, each.count + more) for each in senders]
    while any(each.count < goal and each.is_alive() for each, goal in goals):
        threading.Event().wait(0.01)


def written_marks(behind: Behind) -> Counter[str]:
    query: dict[str, Any] = {
        "filter": {"what": {"_eq": "rolling"}}, "group": ["run"], "aggregate": {"marks": {"fn": "count"}},
        "sort": "run", "limit": 500,
    }  # fmt: skip
    marks: Counter[str] = Counter()
    with behind.api() as client:
        for sender in range(SENDERS):
            query["filter"]["run"] = {"_starts_with": f"{sender}-"}
            for row in client.post("/api/v1/datapool/marks/query", json=query).raise_for_status().json()["data"]:
                marks[row["run"]] = row["marks"]
    return marks


@pytest.mark.chaos  # on a busy machine, a connection may wait in the kernel while the port closes (docs/cluster.md)
def test_no_request_fails_while_both_servers_are_restarted_in_turn(behind: Behind) -> None:
    senders = [Sender(behind, str(number), keeps=number % 2 == 0) for number in range(SENDERS)]
    for each in senders:
        each.start()
    try:
        for index, server in enumerate(behind.servers):
            wait_for(senders, AFTER)
            assert behind.group.stop(server) == 0
            wait_for(senders, AFTER)  # the other one serves alone
            behind.servers[index] = behind.group.start("serve", "--no-workers", port=server.port)
        wait_for(senders, AFTER)
    finally:
        for each in senders:
            each.stopping.set()
        for each in senders:
            each.join()
    assert [failure for each in senders for failure in each.failures] == []
    assert sum(each.statuses[503] for each in senders) == 0
    written = [run for each in senders for run in each.written]
    marks = written_marks(behind)
    assert {run: marks[run] for run in written} == dict.fromkeys(written, 1)
