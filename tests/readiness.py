"""Waits for servers of a test to be ready."""

import time
from collections.abc import Callable

import httpx

LOOK_SECONDS = 0.01


def wait_ready(*ports: int, seconds: float = 60.0, check: Callable[[], bool] = lambda: True, scheme: str = "http") -> None:
    """Return once /readyz answers 200 on every port and `check` is true; TimeoutError after `seconds`.

    `check` is called at each look, and may raise when it is of no use to wait, as when a process has ended. Certificates are
    not verified.
    """
    deadline = time.monotonic() + seconds
    with httpx.Client(trust_env=False, timeout=10, verify=False) as client:  # noqa: S501  # of a test's own server on loopback
        while time.monotonic() < deadline:
            if check() and all(is_ready(client, port, scheme) for port in ports):
                return
            time.sleep(LOOK_SECONDS)  # between two looks
    raise TimeoutError(f"not ready after {seconds:.0f} s: ports {', '.join(map(str, ports))}")


def is_ready(client: httpx.Client, port: int, scheme: str = "http") -> bool:
    """Whether the server on this port answers that it is ready."""
    try:
        return client.get(f"{scheme}://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False
