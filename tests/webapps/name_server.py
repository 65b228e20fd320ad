"""A name server on loopback (UDP and TCP) that returns what a test wants, including false and malformed answers."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

Answer = Callable[[dns.message.Message], bytes | None]


@dataclass
class NameServer:
    """`records` by name and type; `behaviour` by name takes precedence: `servfail`, `silence`, `nonsense`, `refused`."""

    records: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    behaviour: dict[str, str] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def set(self, name: str, kind: str, *values: str) -> None:
        self.records[name, kind] = list(values)

    def clear(self, name: str) -> None:
        for key in [key for key in self.records if key[0] == name]:
            del self.records[key]
        self.behaviour.pop(name, None)

    def answer(self, wire: bytes, most: int) -> bytes | None:
        query = dns.message.from_wire(wire)
        question = query.question[0]
        name, kind = str(question.name).rstrip(".").lower(), dns.rdatatype.to_text(question.rdtype)
        self.queries.append(f"{name} {kind}")
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        behaviour = self.behaviour.get(name)
        if behaviour == "silence":
            return None
        if behaviour == "nonsense":
            return wire[:2] + b"\xff" * 60
        if behaviour in ("servfail", "refused"):
            response.set_rcode(dns.rcode.SERVFAIL if behaviour == "servfail" else dns.rcode.REFUSED)
            return response.to_wire()
        self._fill(response, name, kind)
        whole = response.to_wire(max_size=65535)
        if len(whole) <= most:
            return whole
        response.answer.clear()
        response.flags |= dns.flags.TC
        return response.to_wire()

    def _fill(self, response: dns.message.Message, name: str, kind: str) -> None:
        """The records, a CNAME followed as a resolver does, but not for ever."""
        for _ in range(30):
            if (name, kind) in self.records:
                response.answer.append(dns.rrset.from_text_list(f"{name}.", 60, "IN", kind, self.records[name, kind]))
                return
            if (name, "CNAME") not in self.records:
                break
            (target,) = self.records[name, "CNAME"]
            response.answer.append(dns.rrset.from_text(f"{name}.", 60, "IN", "CNAME", target))
            name = target.rstrip(".")
        if not response.answer and not any(host == name for host, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)


@contextmanager
def running_name_server() -> Iterator[NameServer]:
    """A name server for the length of the block."""
    server = NameServer()

    class Datagram(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            data, back = self.request
            answer = server.answer(data, 1232)
            if answer is not None:
                back.sendto(answer, self.client_address)

    class DatagramServer(socketserver.ThreadingUDPServer):
        max_packet_size = 65535

    class Stream(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            size = int.from_bytes(self.rfile.read(2), "big")
            answer = server.answer(self.rfile.read(size), 65535)
            if answer is not None:
                self.wfile.write(len(answer).to_bytes(2, "big") + answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Stream) as tcp:
        server.port = tcp.server_address[1]
        with DatagramServer(("127.0.0.1", server.port), Datagram) as udp:
            loops: list[socketserver.BaseServer] = [tcp, udp]
            threads = [threading.Thread(target=loop.serve_forever, args=(0.05,), daemon=True) for loop in loops]
            for thread in threads:
                thread.start()
            try:
                yield server
            finally:
                for loop in loops:
                    loop.shutdown()
                for thread in threads:
                    thread.join()
