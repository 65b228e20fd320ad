"""OpenStack Swift with its S3 interface in one process: run by the system's Python, for which Debian packages it.

    /usr/bin/python3 swift_server.py FOLDER

The folder receives everything: rings of one device, configuration, objects, and the file `port` once that port speaks S3.
"""

import sys
from pathlib import Path
from typing import Any

import eventlet

eventlet.monkey_patch()

from eventlet import wsgi  # noqa: E402 - only after the patch
from swift.common import utils  # noqa: E402
from swift.common.ring import RingBuilder  # noqa: E402
from swift.common.wsgi import loadapp  # noqa: E402

STORES = ("account", "container", "object")
PIPELINE = "catch_errors gatekeeper listing_formats bulk s3api tempauth copy slo dlo"
SETTINGS = {
    "s3api": "location = eu-central-1\nstorage_domain = s3.example\n",
    "tempauth": "user_acme_ann = sésame .admin\nuser_acme_bob = sésame\n",
}


class Cache:
    """What Swift wants memcached for, in this one process."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str, **_: Any) -> Any:
        return self._values.get(key)

    def set(self, key: str, value: Any, **_: Any) -> None:
        self._values[key] = value

    def delete(self, key: str, **_: Any) -> None:
        self._values.pop(key, None)


def write_configuration(folder: Path, ports: list[int]) -> None:
    (folder / "srv" / "d").mkdir(parents=True)
    (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = gos\n")
    common = f"[DEFAULT]\nswift_dir = {folder}\ndevices = {folder}/srv\nmount_check = false\nfallocate_reserve = 0\n"
    for kind, port in zip(STORES, ports, strict=False):
        ring = RingBuilder(1, 1, 0)
        place = {"ip": "127.0.0.1", "port": port, "replication_ip": "127.0.0.1", "replication_port": port}
        ring.add_dev({"id": 0, "region": 1, "zone": 1, "device": "d", "weight": 1.0, "meta": "", **place})
        ring.rebalance()
        ring.get_ring().save(str(folder / f"{kind}.ring.gz"))
        service = f"[pipeline:main]\npipeline = server\n[app:server]\nuse = egg:swift#{kind}\nrecon_cache_path = {folder}\n"
        service += "container_update_timeout = 60\n"  # later than that a list would not know the object
        (folder / f"{kind}.conf").write_text(common + service)
    filters = "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n{SETTINGS.get(name, '')}" for name in PIPELINE.split())
    proxy = f"[pipeline:main]\npipeline = {PIPELINE} proxy-server\n[app:proxy-server]\nuse = egg:swift#proxy\n"
    proxy += "account_autocreate = true\nnode_timeout = 60\nconn_timeout = 20\n"
    (folder / "proxy.conf").write_text(common + proxy + filters)


def main() -> None:
    folder = Path(sys.argv[1])
    sockets = [eventlet.listen(("127.0.0.1", 0)) for _ in range(len(STORES) + 1)]
    ports = [each.getsockname()[1] for each in sockets]
    write_configuration(folder, ports)
    utils.set_swift_dir(str(folder))
    cache, servers = Cache(), []
    for name, listener in zip((*STORES, "proxy"), sockets, strict=True):
        application = loadapp(str(folder / f"{name}.conf"))

        def answer(env: Any, start: Any, application: Any = application) -> Any:
            env["swift.cache"] = cache
            return application(env, start)

        servers.append(eventlet.spawn(wsgi.server, listener, answer, log_output=False))
    (folder / "port.new").write_text(str(ports[-1]))
    (folder / "port.new").rename(folder / "port")
    for server in servers:
        server.wait()


if __name__ == "__main__":
    main()
