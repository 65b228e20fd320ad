"""What happens to new contents before a version is ready: no API key may be in them, and they are compressed once."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.blobs.precompression import LARGEST, compressed_forms, is_worth_a_try
from appliance.blobs.service import Blobs
from appliance.core.errors import ApiKeyLeaked
from appliance.core.scope import TenantScope
from appliance.tenants.key_leaks import holds_key

from .records import FileSpec, NewVersion

IDENTITY = "identity"
AT_ONCE = 4


@dataclass(frozen=True)
class Form:
    """A content as it is sent: `sha256` is the blob of this form."""

    content: str
    encoding: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Prepared:
    """A version whose contents are stored, as far as no row tells of it."""

    new: NewVersion
    rules: Mapping[str, Any]
    forms: Sequence[Form]


def prepare_contents(scope: TenantScope, blobs: Blobs, files: Iterable[tuple[str, FileSpec]]) -> list[Form]:
    """The forms of these files' contents, each stored; ApiKeyLeaked names the file that holds a key.  Takes its time."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webapp") as threads:
        found = list(threads.map(partial(_prepare, scope, blobs), files))
    return [form for forms in found for form in forms]


def _prepare(scope: TenantScope, blobs: Blobs, file: tuple[str, FileSpec]) -> list[Form]:
    path, spec = file
    forms = [Form(spec.sha256, IDENTITY, spec.sha256, spec.size)]
    if spec.size > LARGEST:
        _refuse_keys(path, blobs.read_checked(scope, spec.sha256))
        return forms
    data = blobs.read_whole(scope, spec.sha256, LARGEST)
    _refuse_keys(path, [data])
    if is_worth_a_try(path, spec.size):
        for encoding, form in compressed_forms(data):
            stored = blobs.put(scope, form)
            forms.append(Form(spec.sha256, encoding, stored.sha256, stored.size))
    return forms


def _refuse_keys(path: str, pieces: Iterable[bytes]) -> None:
    """Every browser could read it there."""
    if holds_key(pieces):
        raise ApiKeyLeaked(
            f"{path} holds an API key, which everybody could read there: revoke the key, take it out and deploy again",
            pointer=f"/files/{path}",
        )
