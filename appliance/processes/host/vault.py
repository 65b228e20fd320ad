"""`api.secrets.get`: reads a tenant's secret for a step with the grant; the journal stores it sealed."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.core.crypto import Sealer
from appliance.core.errors import PolicyDenied, ValidationFailed
from appliance.core.sentences import Sentence

SECRET = "secrets.get"  # noqa: S105 the name of a call


@dataclass(frozen=True)
class Vault:
    """Opens the secrets named in `granted`; `context` binds their sealed values to one place in the journal."""

    open_secret: Callable[[str], str]
    sealer: Sealer
    granted: frozenset[str]
    context: str

    def open(self, args: list[Any]) -> str:
        """The secret's value; raises PolicyDenied without a grant, NotFound when the tenant has no such secret."""
        match args:
            case [str() as name]:
                pass
            case _:
                raise ValidationFailed("call api.secrets.get(name)")
        if name not in self.granted:
            raise PolicyDenied(
                Sentence("this step has no grant for the secret %(name)s; add grants: secrets: [%(name)s]", name=name[:63])
            )
        return self.open_secret(name)

    def seal(self, call: int, value: str) -> dict[str, str]:
        """A value sealed for the journal, so that a re-run receives the same one."""
        return {"sealed": base64.b64encode(self.sealer.seal(value.encode(), f"{self.context}/{call}")).decode()}

    def unseal(self, call: int, recorded: Any) -> str:
        """The value of a recorded answer; raises ConfigInvalid when the key file has changed."""
        return self.sealer.open(base64.b64decode(recorded["sealed"]), f"{self.context}/{call}").decode()


def redact_answer(method: str, ok: bool, answer: Any) -> Any:
    """A recorded answer for display: of a secret only that it was read, of a model only the exchanges."""
    if method == SECRET and ok:
        return {"sealed": True}
    if method == "llm.generate" and isinstance(answer, dict):
        return {name: each for name, each in answer.items() if name != "sealed"}
    return answer
