"""Contents of a version that is being uploaded: what comes is compared with what was said, stored, and compressed at once.

Done as contents come, in requests of a bounded size, this leaves `finalize_version` little to do.
"""

from collections.abc import Mapping, Sequence
from typing import BinaryIO

from appliance.blobs import ArchiveLimits, Blobs, Received, read_members
from appliance.core.database import db
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.webapps import versions
from appliance.webapps.models import FileRow, VersionRow
from appliance.webapps.records import FileSpec

from .limits import Limits
from .preparing import Form, prepare_contents


def put_content(scope: TenantScope, blobs: Blobs, row: VersionRow, sha256: str, received: Received) -> None:
    """One content; NotFound when the version has none of that sha256, ValidationFailed when something else came."""
    of_this = (FileRow.app_id == row.app_id, FileRow.number == row.number, FileRow.sha256 == sha256)
    spec = scope.select(FileRow).where(*of_this).first()
    if spec is None:
        raise NotFound(Sentence(
            "no file of version %(number)s has the content %(sha256)s; send what it lists as required",
            number=row.number, sha256=repr(sha256[:80]),
        ))
    if (received.sha256, received.size) != (spec.sha256, spec.size):
        raise ValidationFailed(Sentence(
            "%(size)s bytes came with the sha256 %(sha256)s; expected are %(size2)s bytes: send it again",
            size=received.size, sha256=received.sha256, size2=spec.size,
        ))
    blobs.put_received(scope, received)
    _prepare(scope, blobs, row, versions.new_contents(scope, row.app_id, row.number, sha256))


def put_contents(scope: TenantScope, blobs: Blobs, row: VersionRow, file: BinaryIO, limits: Limits) -> list[FileSpec]:
    """The members of an archive; ValidationFailed at the first that is no content of the version, whatever it is called."""
    expected = versions.all_contents(scope, row.app_id, row.number)
    stored = []
    with blobs.batch(scope) as batch:
        for member in read_members(file, ArchiveLimits(limits.files, limits.bytes)):
            received = blobs.receive(member.pieces)
            spec = FileSpec(received.sha256, received.size)
            if spec not in expected:
                received.discard()
                text = Sentence(
                    "the archive member %(path)s is no content of version %(number)s",
                    path=repr(member.path[:100]), number=row.number,
                )
                raise ValidationFailed(Sentence(
                    "%(text)s: %(size)s bytes came with the sha256 %(sha256)s; send it again",
                    text=text, size=spec.size, sha256=spec.sha256,
                ))
            batch.add(received)
            stored.append(spec)
    come = set(stored)
    _prepare(scope, blobs, row, [new for new in versions.new_contents(scope, row.app_id, row.number) if new[1] in come])
    return stored


def put_files(scope: TenantScope, blobs: Blobs, files: Mapping[str, bytes]) -> dict[str, FileSpec]:
    """Contents of a version that is not there yet."""
    specs = {}
    with blobs.batch(scope) as batch:
        for path, content in files.items():
            received = blobs.receive(content)
            batch.add(received)
            specs[path] = FileSpec(received.sha256, received.size)
    return specs


def _prepare(scope: TenantScope, blobs: Blobs, row: VersionRow, contents: Sequence[tuple[str, FileSpec]]) -> None:
    try:
        forms = prepare_contents(scope, blobs, contents)
    except ApplianceError as error:
        if error.status == 422:
            versions.fail(scope, row, error.message)
        raise
    db.write(lambda: keep_forms(scope, blobs, row, forms))


def keep_forms(scope: TenantScope, blobs: Blobs, row: VersionRow, forms: Sequence[Form]) -> None:
    """Inside a write; NotFound when the version has been deleted since its contents came."""
    versions.get_row(scope, row.app_id, row.number)
    versions.insert_forms(scope, blobs, row.app_id, forms)
