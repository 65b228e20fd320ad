"""Files of a WebApp per second, beside bare Hypercorn and nginx in the same run; and what publishing a large version takes.

.venv/bin/python -m tests.bench.static
"""

import hashlib
import io
import json
import os
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from appliance.connectors.testing import free_port
from tests.bench.executions import ROOT, running_server, set_up

from .figures import Kind, Row, Section, show

SIZES = {"1 KB": 1 << 10, "20 KB": 20 << 10, "1 MB": 1 << 20}
CONNECTIONS, SECONDS, ROUNDS = 16, 2.0, 3  # the appliance ends a connection after 1,000 answers
FILES, CHANGED = 5_000, 10
BARE = """
import asyncio, os, sys
from hypercorn.asyncio import serve
from hypercorn.config import Config
bodies = {f"/{size}.bin": open(f"{sys.argv[2]}/{size}.bin", "rb").read() for size in (1 << 10, 20 << 10, 1 << 20)}
async def app(scope, receive, send):
    if scope["type"] == "http":
        body = bodies[scope["path"]]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
        await send({"type": "http.response.body", "body": body})
config = Config(); config.bind = ["127.0.0.1:" + sys.argv[1]]; config.keep_alive_max_requests = 10**9
asyncio.run(serve(app, config))
"""
NGINX = """
{user}daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; types {{ }}
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d;
  scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port}; root {files}; }}
}}
"""


def ask(port: int, host: str, path: str, seconds: float) -> float:
    """GETs per second over CONNECTIONS keep-alive connections, every answer read whole; runs in a process of its own."""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    selector = selectors.DefaultSelector()
    missing: dict[socket.socket, int] = {}
    for _ in range(CONNECTIONS):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, connection)
        missing[connection] = -1
        connection.sendall(request)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for key, _ in selector.select():
            connection = key.data
            piece = connection.recv(1 << 20)
            if not piece:
                raise SystemExit(f"the server has closed the connection with {missing[connection]} bytes of {path} to come")
            if missing[connection] < 0:
                head, _, piece = piece.partition(b"\r\n\r\n")
                if b" 200" not in head.partition(b"\r\n")[0]:
                    raise SystemExit(head.decode("latin1"))
                lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
                missing[connection] = int(lines[b"content-length"])
            missing[connection] -= len(piece)
            if missing[connection] == 0:
                missing[connection] = -1
                count += 1
                connection.sendall(request)
    return count / (time.perf_counter() - began)


def per_second(port: int, host: str, path: str) -> float:
    plan = json.dumps([port, host, path, SECONDS])
    line = [sys.executable, "-m", "tests.bench.static", plan]
    done = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return float(done.stdout)


@contextmanager
def started(command: list[str], port: int) -> Iterator[None]:
    """A peer that listens when this is entered."""
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        for _ in range(2000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.005)
        yield
    finally:
        process.terminate()
        process.wait(30)


def archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return out.getvalue()


def compare(folder: Path, api: httpx.Client, port: int, section: Section) -> None:
    """Add a row for each size and server: medians of the rounds."""
    files = folder / "files"
    files.mkdir()
    for size in SIZES.values():
        (files / f"{size}.bin").write_bytes(os.urandom(size))
    publish(api, "bench", {path.name: path.read_bytes() for path in files.iterdir()})
    bare, engine = free_port(), free_port()
    user = "" if os.geteuid() else "user root;\n"
    (folder / "nginx.conf").write_text(NGINX.format(user=user, folder=folder, port=engine, files=files))
    peers = [("GOS", port, "bench--demo.content.localhost"), ("bare Hypercorn", bare, "localhost")]
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    with started([sys.executable, "-c", BARE, str(bare), str(files)], bare):
        if nginx is None:
            section.omitted.append("nginx: not installed (apt-get install nginx-light)")
            section.rows += measure(peers)
        else:
            with started([nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")], engine):
                section.rows += measure([*peers, ("nginx", engine, "localhost")])


def measure(peers: list[tuple[str, int, str]]) -> list[Row]:
    kinds: dict[str, Kind] = {"GOS": "measured", "bare Hypercorn": "floor", "nginx": "peer"}
    rows = []
    for label, size in SIZES.items():
        rounds: dict[str, list[float]] = {name: [] for name, *_ in peers}
        for _ in range(ROUNDS):
            for name, port, host in peers:
                rounds[name].append(per_second(port, host, f"/{size}.bin"))
        for name, values in rounds.items():
            title = f"files of {label}" if name == "GOS" else f"{name}, files of {label}"
            rows.append(Row(title, {"per second": statistics.median(values)}, kinds[name]))
    return rows


def publish(api: httpx.Client, app: str, files: dict[str, bytes]) -> None:
    """Create the app and publish these files as one archive."""
    api.post("/api/v1/webapps", json={"id": app}).raise_for_status()
    sent = {"Content-Type": "application/gzip"}
    version = api.post(f"/api/v1/webapps/{app}/versions", content=archive(files), headers=sent).raise_for_status().json()["data"]
    api.post(f"/api/v1/webapps/{app}/versions/{version['version']}/publish", json={}).raise_for_status()


def redeploy(api: httpx.Client) -> list[Row]:
    """What it takes to publish a version of FILES files of which CHANGED are new."""
    files = {f"assets/file-{number}.js": f"export const n = {number}\n".encode() * 20 for number in range(FILES)}
    began = time.perf_counter()
    publish(api, "large", files)
    first = time.perf_counter() - began
    times = []
    for turn in range(ROUNDS):
        files |= {f"assets/file-{number}.js": f"export const n = {turn}.{number}\n".encode() * 20 for number in range(CHANGED)}
        began = time.perf_counter()
        send_changes(api, files)
        times.append(time.perf_counter() - began)
    return [
        Row(f"publish {FILES:,} files, first version, one archive", {"s": first}),
        Row(f"publish {FILES:,} files of which {CHANGED} have changed", {"s": statistics.median(times)}, aim="2 s"),
    ]


def send_changes(api: httpx.Client, files: dict[str, bytes]) -> None:
    by_digest = {hashlib.sha256(content).hexdigest(): content for content in files.values()}
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    manifest = {"files": {path: {"sha256": digests[path], "size": len(content)} for path, content in files.items()}}
    version = api.post("/api/v1/webapps/large/versions", json=manifest).raise_for_status().json()["data"]
    if len(version["required"]) != CHANGED:
        raise SystemExit(f"{len(version['required'])} contents were asked for, not {CHANGED}")
    one = f"/api/v1/webapps/large/versions/{version['version']}"
    for sha256 in version["required"]:
        api.put(f"{one}/blobs/{sha256}", content=by_digest[sha256]).raise_for_status()
    api.post(f"{one}/finalize", json={}).raise_for_status()
    api.post(f"{one}/publish", json={}).raise_for_status()


def measure_section() -> Section:
    about = f"GET over {CONNECTIONS} keep-alive connections for {SECONDS:.0f} s, medians of {ROUNDS} rounds; publishing a version."
    section = Section("Files of WebApps", about, plot="per second")
    with tempfile.TemporaryDirectory() as temporary:
        folder, port = Path(temporary), free_port()
        data = folder / "data"
        tenant, key = set_up(data, port)
        with running_server(data, port):
            headers = {"X-API-Key": key, "Host": f"{tenant}.localhost:{port}"}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120, trust_env=False) as api:
                compare(folder, api, port, section)
                section.rows += redeploy(api)
    return section


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(ask(*json.loads(sys.argv[1])))
    else:
        show(measure_section())
