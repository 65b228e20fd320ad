"""One valid request for every route of secrets."""

from collections.abc import Callable

from tests.api.example import Example
from tests.api.resources import Resources


def _add(tenant: Resources) -> Example:
    return Example({"name": tenant.secret()}, {"kind": "integration", "target": "shop", "hosts": "shop.example"})


def _remove(tenant: Resources) -> Example:
    name, binding = tenant.secret_binding()
    return Example({"name": name, "binding_id": binding})


SECRETS: dict[str, Callable[[Resources], Example]] = {
    "set_secret": lambda tenant: Example({"name": "token"}, {"value": "very secret"}),
    "delete_secret": lambda tenant: Example({"name": tenant.secret()}),
    "add_secret_binding": _add,
    "remove_secret_binding": _remove,
}
