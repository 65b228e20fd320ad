"""`python -m tests.journeys.company.provider`: fetches an OpenID Connect provider once, by the lock in `packages`."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.connectors.testing import free_port
from tests.npm_packages import fetch_packages, find_node

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Company:
    """A company with its provider; `put` says what the provider tells about a person from now on."""

    folder: Path
    port: int
    client_id: str = "gos"
    client_secret: str = "a secret of the company"

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, name: str, *groups: str) -> None:
        people = {name: {"email": f"{name}@company.test", "email_verified": True, "groups": list(groups)}}
        (self.folder / "people.json").write_text(json.dumps(people))


def fetch_modules() -> Path:
    return fetch_packages(HERE / "packages", "company")


@contextmanager
def running_company(folder: Path, base_url: str, provider_id: str) -> Iterator[Company]:
    """A running provider, at which the appliance is registered as its documentation says."""
    company = Company(folder, free_port())
    company.put("ann")
    at = f"{base_url}/oidc/{provider_id}"
    client: dict[str, Any] = {
        "client_id": company.client_id, "client_secret": company.client_secret, "redirect_uris": [f"{at}/callback"],
        "backchannel_logout_uri": f"{at}/logout", "backchannel_logout_session_required": True,
    }  # fmt: skip
    settings = {
        "issuer": company.issuer, "port": company.port, "client": client, "people": str(folder / "people.json"),
        "modules": str(fetch_modules()),
    }  # fmt: skip
    (folder / "settings.json").write_text(json.dumps(settings))
    command = [find_node(), str(HERE / "provider.mjs"), str(folder / "settings.json")]
    with (folder / "errors.log").open("wb") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
        try:
            assert process.stdout is not None
            if b"ready\n" not in iter(process.stdout.readline, b""):
                raise RuntimeError((folder / "errors.log").read_text())
            yield company
        finally:
            process.terminate()


if __name__ == "__main__":
    fetch_modules()
