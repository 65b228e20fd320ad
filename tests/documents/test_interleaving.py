"""Two changes of documents and what belongs to them end as if one had followed the other."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from appliance.blobs import Blobs, LocalPlaces
from appliance.core import ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents import folder_rules, retention
from appliance.documents.folder_rules import FolderRule
from appliance.documents.reviews import reviews
from appliance.documents.reviews.reviews import NewReview
from appliance.documents.service import BLOB_TABLES, Changes, DocumentFilter, Documents, NewDocument
from appliance.documents.sharing.delivery import DeliveryPolicy
from appliance.documents.sharing.downloads import Origin
from appliance.documents.sharing.publications import NewPublication, Publications
from appliance.documents.sharing.shares import NewShare, Shares
from appliance.documents.uploads import NewUpload, Uploads
from appliance.tenants import ALL_SCOPES, SignedIn, people
from appliance.tenants import service as tenants
from appliance.tenants.models import Person
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, Step, check_pair, without_exclusive_writes
from tests.store.opening import open_migrated

HERE = Origin("192.0.2.0/24", "Firefox")
numbers = itertools.count(1)


@dataclass
class Library:
    """The documents of tenant acme; each pair of verbs has a folder of its own."""

    scope: TenantScope
    documents: Documents
    uploads: Uploads
    publications: Publications
    shares: Shares
    reviewers: list[SignedIn]

    def new_folder(self) -> str:
        return f"f{next(numbers)}"

    def add(self, folder: str = "", content: bytes = b"one") -> str:
        return self.documents.store_document(self.scope, NewDocument("a.txt", folder=folder or self.new_folder()), content).id

    def revise(self, document_id: str, content: bytes, version: int | None = None) -> Any:
        stored = self.documents.store_content(self.scope, content)
        return self.documents.add_revision(self.scope, document_id, stored, if_version=version)

    def change(self, document_id: str, **changes: Any) -> Any:
        return self.documents.update_document(self.scope, document_id, Changes(**changes))

    def read(self, *folders: str) -> list[Any]:
        """The documents of each folder, with the numbers of their revisions."""
        contents = []
        for place, folder in enumerate(folders):
            for document in self.documents.list_documents(self.scope, DocumentFilter(folder=folder), PageRequest()).items:
                revisions = self.documents.list_revisions(self.scope, document.id, PageRequest()).items
                has_contents = all(db.rows("SELECT 1 FROM blob WHERE sha256 = ?", (each.sha256,)) for each in revisions)
                contents.append(
                    (document.name, place, document.tags, dict(document.metadata), document.version, document.revision,
                     [each.number for each in revisions], has_contents)
                )  # fmt: skip
        return contents

    def rows(self, table: str, document_id: str, columns: str = "count(*)") -> list[Any]:
        """Rows of a document, in whatever state it is."""
        return db.rows(f"SELECT {columns} FROM {table} WHERE document_id = ? ORDER BY 1", (document_id,))  # noqa: S608  our names


@pytest.fixture(scope="module")
def library(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    open_migrated(cluster.emptied())
    tenants.create_tenant("acme", "Acme")
    scope = TenantScope("acme", "key:acme", ALL_SCOPES)
    blobs = Blobs(LocalPlaces(tmp_path_factory.mktemp("blobs")), BLOB_TABLES)
    documents, policy = Documents(blobs), DeliveryPolicy(blobs, reviews)
    yield Library(
        scope, documents, Uploads(documents, blobs, 1 << 20), Publications(policy), Shares(policy, Sealer(b"k" * 32)),
        [sign_in(f"{name}@acme.test") for name in ("ada", "bob")],
    )  # fmt: skip
    db.close_database()


def sign_in(login: str) -> SignedIn:
    person = db.write(lambda: Person.create(id=ids.new("usr"), login=login, password_hash="", created_at=1))
    people.add_member(tenants.system_scope("acme"), login, "viewer")
    return SignedIn(person.id, login, "viewer", TenantScope("acme", f"user:{person.id}"))


def two_new_documents(of: Library) -> Pair:
    """Documents have numbers of their own, which searches go by."""
    folder = of.new_folder()
    number = "SELECT count(*) - count(DISTINCT number) FROM document"
    return Pair(lambda: of.add(folder), lambda: of.add(folder, b"two"), lambda: (of.read(folder), db.rows(number)))


def two_revisions(of: Library) -> Pair:
    folder = of.new_folder()
    document = of.add(folder)
    return Pair(lambda: of.revise(document, b"two"), lambda: of.revise(document, b"three"), lambda: of.read(folder))


def two_revisions_of_a_version(of: Library) -> Pair:
    folder = of.new_folder()
    document = of.add(folder)
    return Pair(lambda: of.revise(document, b"two", 1), lambda: of.revise(document, b"three", 1), lambda: of.read(folder))


def rename_and_describe(of: Library) -> Pair:
    folder = of.new_folder()
    document = of.add(folder)
    return Pair(
        lambda: of.change(document, name="b.txt", metadata={"a": 1}),
        lambda: of.change(document, tags=("x",), metadata={"b": 2}),
        lambda: of.read(folder),
    )


def revise_and_retype(of: Library) -> Pair:
    folder = of.new_folder()
    document = of.add(folder)
    types = partial(of.rows, "document_revision", document, "number, media_type")
    return Pair(
        lambda: of.revise(document, b'{"a": 1}'),
        lambda: of.change(document, media_type="text/markdown"),
        lambda: (of.read(folder), types()),
        may_refuse=("VersionConflict",),  # The content has changed since it was looked at.
    )


def revise_and_delete(of: Library) -> Pair:
    folder = of.new_folder()
    document = of.add(folder)
    return Pair(
        lambda: of.revise(document, b"two"),
        lambda: of.documents.delete_document(of.scope, document),
        lambda: (of.read(folder), of.rows("document_revision", document)),
    )


def move_a_folder_and_add_to_it(of: Library) -> Pair:
    source, target = of.new_folder(), of.new_folder()
    of.add(f"{source}/deep")
    return Pair(
        lambda: of.documents.move_folder(of.scope, source, target),
        lambda: of.add(f"{source}/deep", b"two"),
        lambda: of.read(f"{source}/deep", f"{target}/deep"),
    )


def move_folders_into_each_other(of: Library) -> Pair:
    one, two = of.new_folder(), of.new_folder()
    of.add(one)
    of.add(two)
    return Pair(
        lambda: of.documents.move_folder(of.scope, one, f"{two}/in"),
        lambda: of.documents.move_folder(of.scope, two, f"{one}/in"),
        lambda: of.read(one, two, f"{one}/in", f"{two}/in", f"{one}/in/in", f"{two}/in/in"),
    )


def retain_and(act: Callable[[Library, str, str], Step]) -> Callable[[Library], Pair]:
    """A document that is retained stays where it is."""

    def make(of: Library) -> Pair:
        folder = of.new_folder()
        document = of.add(folder)
        return Pair(
            lambda: retention.set_hold(of.scope, document, "a lawsuit"),
            act(of, document, folder),
            lambda: (of.read(folder, f"{folder}-moved"), of.rows("document_keeping", document)),
        )

    return make


def publish_and_delete(of: Library) -> Pair:
    document, path = of.add(), f"p{next(numbers)}.txt"
    return Pair(
        lambda: of.publications.publish(of.scope, document, NewPublication(path)),
        lambda: of.documents.delete_document(of.scope, document),
        lambda: of.publications.find_public(of.scope, path) is None,
    )


def publish_two_at_a_path(of: Library) -> Pair:
    one, two, path = of.add(), of.add(), f"p{next(numbers)}.txt"
    return Pair(
        lambda: of.publications.publish(of.scope, one, NewPublication(path)),
        lambda: of.publications.publish(of.scope, two, NewPublication(path)),
        lambda: [*of.rows("document_publication", one), *of.rows("document_publication", two)],
    )


def publish_and_unpublish(of: Library) -> Pair:
    document, path = of.add(), f"p{next(numbers)}.txt"
    return Pair(
        lambda: of.publications.publish(of.scope, document, NewPublication(path)),
        lambda: of.publications.unpublish(of.scope, document),
        lambda: of.publications.find_public(of.scope, path) is None,
    )


def two_last_downloads(of: Library) -> Pair:
    document = of.add()
    share, token = of.shares.create_share(of.scope, document, NewShare(max_downloads=1))
    opened = of.shares.open_share(of.scope, token)
    assert opened is not None

    def read() -> Any:
        return of.shares.get_share(of.scope, document, share.id).downloads, of.rows("document_download", document)

    return Pair.of((lambda: of.shares.start_download(of.scope, opened, HERE),) * 2, read)


def share_and_delete(of: Library) -> Pair:
    document = of.add()
    return Pair(
        lambda: of.shares.create_share(of.scope, document, NewShare()),
        lambda: of.documents.delete_document(of.scope, document),
        lambda: of.rows("document_share", document),
    )


def revoke_and_download(of: Library) -> Pair:
    document = of.add()
    share, token = of.shares.create_share(of.scope, document, NewShare())
    opened = of.shares.open_share(of.scope, token)
    assert opened is not None
    return Pair(
        lambda: of.shares.revoke_share(of.scope, document, share.id),
        lambda: of.shares.start_download(of.scope, opened, HERE),
        lambda: (of.shares.get_share(of.scope, document, share.id).downloads, of.rows("document_download", document)),
    )


def ask_for_two_reviews(of: Library) -> Pair:
    document = of.add()
    new = NewReview([person.login for person in of.reviewers])
    return Pair.of((lambda: reviews.request_review(of.scope, document, new),) * 2, lambda: of.rows("document_review", document))


def decide(of: Library, needed: int, *decisions: Any) -> Pair:
    document = of.add()
    review = reviews.request_review(of.scope, document, NewReview([each.login for each in of.reviewers], needed=needed))

    def vote(person: SignedIn, decision: Any) -> Any:
        assert person.scope is not None
        return reviews.decide_review(person.scope, person, document, review.id, decision)

    one, two = (partial(vote, person, decision) for person, decision in zip(of.reviewers, decisions, strict=True))

    def read() -> Any:
        stored = reviews.get_review(of.scope, document, review.id)
        return stored.status, sorted((each.login, each.decision) for each in stored.votes)

    return Pair(one, two, read)


def withdraw_and_decide(of: Library) -> Pair:
    document = of.add()
    review = reviews.request_review(of.scope, document, NewReview([of.reviewers[0].login]))
    person = of.reviewers[0]
    assert person.scope is not None
    return Pair(
        lambda: reviews.withdraw_review(of.scope, document, review.id),
        lambda: reviews.decide_review(person.scope, person, document, review.id, "approve"),  # type: ignore[arg-type]
        lambda: reviews.get_review(of.scope, document, review.id).status,
    )


def two_rules_of_a_folder(of: Library) -> Pair:
    folder = of.new_folder()
    return Pair(
        lambda: folder_rules.put_rule(of.scope, FolderRule(folder, "required")),
        lambda: folder_rules.put_rule(of.scope, FolderRule(folder, "none", 7)),
        lambda: [(rule.review, rule.delete_after_days) for rule in folder_rules.list_rules(of.scope) if rule.folder == folder],
    )


def upload_of(of: Library, folder: str, **options: Any) -> str:
    return of.uploads.open_upload(of.scope, NewUpload(6, new=NewDocument("a.txt", folder=folder), **options)).id


def send(of: Library, upload_id: str, offset: int, part: bytes) -> None:
    receiving = of.uploads.start_part(of.scope, upload_id, offset)
    receiving.write(part)
    receiving.finish()


def send_a_part_twice(of: Library) -> Pair:
    folder = of.new_folder()
    upload = upload_of(of, folder)
    return Pair(
        lambda: send(of, upload, 0, b"abc"),
        lambda: send(of, upload, 0, b"abcd"),
        lambda: (of.uploads.get_upload(of.scope, upload).received, db.rows(
            "SELECT begins, size FROM document_upload_part WHERE upload_id = ?", (upload,)
        )),
    )  # fmt: skip


def finish_an_upload_twice(of: Library) -> Pair:
    folder = of.new_folder()
    upload = upload_of(of, folder)
    return Pair(
        lambda: send(of, upload, 0, b"abcdef"),
        lambda: of.uploads.finish_upload(of.scope, upload),
        lambda: (of.read(folder), of.uploads.get_upload(of.scope, upload).state),
    )


def finish_and_delete_an_upload(of: Library) -> Pair:
    folder = of.new_folder()
    upload = upload_of(of, folder)
    return Pair(
        lambda: send(of, upload, 0, b"abcdef"),
        lambda: of.uploads.delete_upload(of.scope, upload),
        lambda: (of.read(folder), db.rows("SELECT 1 FROM document_upload_part WHERE upload_id = ?", (upload,))),
    )


def upload_a_revision_of_what_is_deleted(of: Library) -> Pair:
    document = of.add()
    upload = of.uploads.open_upload(of.scope, NewUpload(6, document_id=document)).id
    return Pair(
        lambda: send(of, upload, 0, b"abcdef"),
        lambda: of.documents.delete_document(of.scope, document),
        lambda: of.rows("document_revision", document),
    )


PAIRS: dict[str, Callable[[Library], Pair]] = {
    each.__name__: each
    for each in (
        two_new_documents, two_revisions, two_revisions_of_a_version, rename_and_describe, revise_and_retype, revise_and_delete,
        move_a_folder_and_add_to_it, move_folders_into_each_other, publish_and_delete, publish_two_at_a_path,
        publish_and_unpublish, two_last_downloads, share_and_delete, revoke_and_download, ask_for_two_reviews, withdraw_and_decide,
        two_rules_of_a_folder, send_a_part_twice, finish_an_upload_twice, finish_and_delete_an_upload,
        upload_a_revision_of_what_is_deleted,
    )
} | {
    "retain_and_delete": retain_and(lambda of, document, _: lambda: of.documents.delete_document(of.scope, document)),
    "retain_and_move": retain_and(lambda of, document, folder: lambda: of.change(document, folder=f"{folder}-moved")),
    "retain_and_move_its_folder": retain_and(
        lambda of, _, folder: lambda: of.documents.move_folder(of.scope, folder, f"{folder}-moved")
    ),
    "approve_and_reject": lambda of: decide(of, 1, "approve", "reject"),
    "approve_twice": lambda of: decide(of, 2, "approve", "approve"),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(library: Library, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](library), reads=request.config.option.all) >= 4


@pytest.mark.parametrize("pair", ["two_revisions", "retain_and_delete", "approve_twice"])
def test_without_exclusive_writes_it_is_not_so(library: Library, pair: str) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: PAIRS[pair](library))
