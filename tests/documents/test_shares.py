"""Shares expire, are counted exactly, store no secret in clear text, and deliver only what is allowed."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from appliance.blobs import Blobs
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApiKeyLeaked, Conflict, NotFound, ScopeMissing, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents import folder_rules
from appliance.documents.folder_rules import FolderRule
from appliance.documents.service import Changes, Documents, NewDocument
from appliance.documents.sharing import downloads
from appliance.documents.sharing.audiences import Audience, AudienceChange
from appliance.documents.sharing.delivery import DeliveryPolicy
from appliance.documents.sharing.downloads import Origin, PublicDeliveries, agent_family, shorten_address
from appliance.documents.sharing.publications import NewPublication, Publications
from appliance.documents.sharing.shares import DAY, VISIT_MS, NewShare, OpenShare, Shares, purge
from appliance.solutions import delete_expired
from appliance.tenants.keys import make_key_text
from appliance.testing.running import make_config

HERE = Origin("192.0.2.0/24", "Firefox")
SHARING = TenantScope("acme", "key:other", frozenset({"documents.write", "documents.share"}))


@dataclass
class FakeReviews:
    """Reviews backed by a set of approved revisions."""

    revisions: set[tuple[str, int]] = field(default_factory=set)

    def latest_approved(self, scope: TenantScope, document_id: str) -> int | None:
        return max((number for document, number in self.revisions if document == document_id), default=None)

    def is_approved(self, scope: TenantScope, document_id: str, revision: int) -> bool:
        return (document_id, revision) in self.revisions


@pytest.fixture
def approved() -> FakeReviews:
    return FakeReviews()


@pytest.fixture
def delivery(blobs: Blobs, approved: FakeReviews) -> DeliveryPolicy:
    return DeliveryPolicy(blobs, approved)


@pytest.fixture
def shares(documents: Documents, delivery: DeliveryPolicy) -> Shares:
    return Shares(delivery, Sealer(b"k" * 32))


@pytest.fixture
def document(documents: Documents, acme: TenantScope) -> str:
    return documents.store_document(acme, NewDocument("a.txt"), b"one").id


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Milliseconds by which the clock is ahead, in a list that tests change."""
    ahead, now = [0], clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now() + ahead[0])
    return ahead


def open_share(shares: Shares, scope: TenantScope, token: str) -> OpenShare:
    share = shares.open_share(scope, token)
    assert share is not None
    return share


def test_a_token_opens_its_share_and_is_not_stored(
    shares: Shares, documents: Documents, acme: TenantScope, globex: TenantScope, document: str
) -> None:
    share, token = shares.create_share(acme, document, NewShare(1, password="a good sentence", note="for you"))
    documents.add_revision(acme, document, documents.store_content(acme, b"two"))
    assert len(token) == 32
    assert (share.state, share.has_password, share.expires_at - share.created_at) == ("active", True, 14 * DAY)
    assert open_share(shares, acme, token).content.revision == 1
    newest, other = shares.create_share(acme, document, NewShare())
    assert open_share(shares, acme, other).content.revision == 2
    for wrong in ("", token[:-1], token + "x", "x" * 5000, share.id):
        assert shares.open_share(acme, wrong) is None
    assert shares.open_share(globex, token) is None
    stored = repr(db.rows("SELECT * FROM document_share")) + repr(db.rows("SELECT * FROM audit_entry"))
    assert token not in stored
    assert "a good sentence" not in stored
    page = shares.list_shares(acme, document, PageRequest())
    assert [each.id for each in page.items] == [newest.id, share.id]
    for attempt in (
        lambda: shares.list_shares(globex, document, PageRequest()),
        lambda: shares.get_share(globex, document, share.id),
        lambda: shares.revoke_share(globex, document, share.id),
        lambda: shares.create_share(globex, document, NewShare()),
        lambda: downloads.list_downloads(globex, document, PageRequest()),
    ):
        with pytest.raises(NotFound):
            attempt()


def test_a_share_ends_when_it_expires_is_revoked_or_its_document_is_deleted(
    shares: Shares, documents: Documents, acme: TenantScope, document: str, later: list[int]
) -> None:
    share, token = shares.create_share(acme, document, NewShare())
    revoked, second = shares.create_share(acme, document, NewShare())
    before = open_share(shares, acme, second)
    shares.revoke_share(acme, document, revoked.id)
    shares.revoke_share(acme, document, revoked.id)
    assert shares.open_share(acme, second) is None
    assert shares.start_download(acme, before, HERE) is None
    assert shares.get_share(acme, document, revoked.id).state == "revoked"
    open_before = open_share(shares, acme, token)
    later[0] = 14 * DAY
    assert shares.open_share(acme, token) is None
    assert shares.start_download(acme, open_before, HERE) is None
    assert shares.get_share(acme, document, share.id).state == "expired"
    _, third = shares.create_share(acme, document, NewShare())
    documents.delete_document(acme, document)
    assert shares.open_share(acme, third) is None


@pytest.mark.parametrize("most", [1, 7])
def test_concurrent_downloads_stay_within_the_limit(shares: Shares, acme: TenantScope, document: str, most: int) -> None:
    share, token = shares.create_share(acme, document, NewShare(max_downloads=most))
    opened, started, together = open_share(shares, acme, token), [], threading.Barrier(20)

    def fetch() -> None:
        together.wait()
        started.append(shares.start_download(acme, opened, HERE))

    threads = [threading.Thread(target=fetch) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(started) == 20
    assert len({each for each in started if each is not None}) == most
    after = shares.get_share(acme, document, share.id)
    assert (after.downloads, after.state) == (most, "used_up")
    assert len(downloads.list_downloads(acme, document, PageRequest()).items) == most


def test_a_download_is_logged_from_start_to_end(
    shares: Shares, acme: TenantScope, document: str, later: list[int]
) -> None:
    share, token = shares.create_share(acme, document, NewShare(password="a good sentence"))
    opened = open_share(shares, acme, token)
    assert shares.verify_password(acme, opened, "a good sentence", HERE)
    assert not shares.verify_password(acme, opened, "a bad sentence", HERE)
    later[0] = 1
    download = shares.start_download(acme, opened, HERE)
    assert download is not None
    newest = downloads.list_downloads(acme, document, PageRequest()).items[0]
    assert (newest.id, newest.outcome, newest.bytes) == (download, "started", 0)
    shares.end_download(acme, download, 1, complete=False)
    shares.end_download(acme, download, 2, complete=True)
    lines = downloads.list_downloads(acme, document, PageRequest()).items
    assert [(line.outcome, line.bytes, line.share_id, line.revision) for line in lines] == [
        ("complete", 3, share.id, 1), ("wrong_password", 0, share.id, 1),
    ]  # fmt: skip
    assert {(line.address, line.agent) for line in lines} == {("192.0.2.0/24", "Firefox")}
    table = "".join(downloads.export_downloads(acme, document)).splitlines()
    assert table[0] == "at,share_id,address,agent,revision,count,bytes,outcome,person"
    assert table[2].endswith(f",{share.id},192.0.2.0/24,Firefox,1,1,3,complete,")
    assert shares.may_continue(acme, opened, download)
    assert not shares.may_continue(acme, opened, "dwl_other")
    _, other = shares.create_share(acme, document, NewShare())
    assert not shares.may_continue(acme, open_share(shares, acme, other), download)
    later[0] = VISIT_MS + 2
    assert not shares.may_continue(acme, opened, download)
    downloads.purge(clock.now_ms() + 1)
    assert downloads.list_downloads(acme, document, PageRequest()).items == []


def test_a_download_does_not_continue_with_another_revision(
    shares: Shares, documents: Documents, acme: TenantScope, document: str
) -> None:
    _, token = shares.create_share(acme, document, NewShare(max_downloads=1))
    download = shares.start_download(acme, open_share(shares, acme, token), HERE)
    assert download is not None
    assert shares.may_continue(acme, open_share(shares, acme, token), download)
    documents.add_revision(acme, document, documents.store_content(acme, b"two"))
    newer = open_share(shares, acme, token)
    assert (newer.content.revision, newer.share.state) == (2, "used_up")
    assert not shares.may_continue(acme, newer, download)


def test_a_share_is_deleted_long_after_it_ended(
    shares: Shares, acme: TenantScope, document: str, later: list[int], tmp_path: Path
) -> None:
    short, token = shares.create_share(acme, document, NewShare(expires_at=clock.now_ms() + DAY))
    long, _ = shares.create_share(acme, document, NewShare())
    assert shares.start_download(acme, open_share(shares, acme, token), HERE) is not None
    assert purge(clock.now_ms()) == 0
    assert purge(short.expires_at) == 0
    assert purge(short.expires_at + 1) == 1
    assert [each.id for each in shares.list_shares(acme, document, PageRequest()).items] == [long.id]
    config = make_config(tmp_path)
    later[0] = long.expires_at - clock.now_ms() + (config.retention.audit_days + 1) * DAY
    delete_expired(config)
    assert shares.list_shares(acme, document, PageRequest()).items == []


def test_a_ticket_is_valid_for_its_share_only(shares: Shares, acme: TenantScope, document: str) -> None:
    one, two = (open_share(shares, acme, shares.create_share(acme, document, NewShare())[1]) for _ in range(2))
    ticket = shares.seal_ticket(one, "123-dwl_1")
    assert shares.read_ticket(one, ticket) == "123-dwl_1"
    assert shares.read_ticket(two, ticket) is None
    for forged in ("", "124" + ticket[3:], ticket[:-1], "123-dwl_1.", "é.é"):
        assert shares.read_ticket(one, forged) is None


def test_changing_the_audience_invalidates_tickets(shares: Shares, acme: TenantScope, document: str) -> None:
    share, token = shares.create_share(acme, document, NewShare(audience=AudienceChange("post", ["*@firma.example"])))
    before = open_share(shares, acme, token)
    assert before.share.audience == Audience("post", ("*@firma.example",))
    ticket = shares.seal_ticket(before, "123--ann@firma.example")
    assert shares.read_ticket(before, ticket) == "123--ann@firma.example"
    somebody = Origin("", "", "=ann@firma.example")
    download = shares.start_download(acme, before, somebody)
    assert download is not None
    assert shares.may_continue(acme, before, download, "=ann@firma.example")
    assert not shares.may_continue(acme, before, download, "bob@firma.example")
    assert "".join(downloads.export_downloads(acme, document)).endswith(",started,'=ann@firma.example\r\n")
    shares.change_audience(acme, document, share.id, AudienceChange(allow=["*@firma.example"]))
    assert shares.start_download(acme, before, somebody) is None
    after = open_share(shares, acme, token)
    assert shares.read_ticket(after, ticket) is None
    assert after.share.audience == before.share.audience
    assert "*@firma.example" in repr(db.rows("SELECT fields FROM audit_entry WHERE action = 'share.change'"))


@pytest.mark.parametrize(
    "new",
    [
        NewShare(expires_at=1), NewShare(expires_at=clock.now_ms() + 400 * DAY), NewShare(password="short"),
        NewShare(max_downloads=0), NewShare(note="x" * 1001), NewShare(revision=2),
    ],
)  # fmt: skip
def test_an_unlimited_share_is_refused(shares: Shares, acme: TenantScope, document: str, new: NewShare) -> None:
    with pytest.raises(ValidationFailed):
        shares.create_share(acme, document, new)


def test_the_longest_lifetime_matches_its_error(shares: Shares, acme: TenantScope, document: str) -> None:
    shares.create_share(acme, document, NewShare(expires_at=clock.now_ms() + 366 * DAY - 60_000))
    with pytest.raises(ValidationFailed, match="at most 366 days ahead"):
        shares.create_share(acme, document, NewShare(expires_at=clock.now_ms() + 366 * DAY + 60_000))


def test_a_required_review_limits_delivery_to_approved_revisions(
    shares: Shares, delivery: DeliveryPolicy, documents: Documents, acme: TenantScope, approved: FakeReviews
) -> None:
    folder_rules.put_rule(acme, FolderRule("legal", "required"))
    document_id = documents.store_document(acme, NewDocument("a.txt", None, "legal/2026"), b"one").id
    published = Publications(delivery)
    assert published.publish(acme, document_id, NewPublication("a.txt")).serves is None
    _, token = shares.create_share(acme, document_id, NewShare())
    assert shares.open_share(acme, token) is None
    with pytest.raises(Conflict, match="not approved"):
        shares.create_share(acme, document_id, NewShare(1))
    approved.revisions.add((document_id, 1))
    documents.add_revision(acme, document_id, documents.store_content(acme, b"two"))
    assert open_share(shares, acme, token).content.revision == 1
    assert published.get_publication(acme, document_id).serves == 1
    _, pinned = shares.create_share(acme, document_id, NewShare(1))
    approved.revisions.clear()
    assert shares.open_share(acme, pinned) is None
    documents.update_document(SHARING, document_id, Changes(folder="legalese"))
    assert open_share(shares, acme, token).content.revision == 2
    documents.update_document(acme, document_id, Changes(folder="legal"))
    assert shares.open_share(acme, token) is None
    folder_rules.delete_rule(acme, "legal")
    assert open_share(shares, acme, token).content.revision == 2
    with pytest.raises(NotFound):
        folder_rules.delete_rule(acme, "legal")


def test_writers_cannot_move_documents_out_of_required_reviews(
    shares: Shares, delivery: DeliveryPolicy, documents: Documents, acme: TenantScope, approved: FakeReviews
) -> None:
    folder_rules.put_rule(acme, FolderRule("legal", "required"))
    public, shared, neither = (
        documents.store_document(acme, NewDocument(name, None, f"legal/{name}"), b"one").id for name in "abc"
    )
    Publications(delivery).publish(acme, public, NewPublication("a.txt"))
    share, _ = shares.create_share(acme, shared, NewShare())
    approved.revisions |= {(public, 1), (shared, 1)}
    for each in (public, shared):
        documents.add_revision(acme, each, documents.store_content(acme, b"two, which nobody has seen"))
    attempts: tuple[Callable[[], object], ...] = (
        lambda: documents.update_document(acme, public, Changes(folder="free")),
        lambda: documents.update_document(acme, shared, Changes(folder="")),
        lambda: documents.move_folder(acme, "legal/a", "free"),
        lambda: documents.move_folder(acme, "legal", "free"),
    )
    for attempt in attempts:
        with pytest.raises(ScopeMissing, match=r"documents\.share"):
            attempt()
    assert documents.get_document(acme, public).folder == "legal/a"
    documents.update_document(acme, neither, Changes(folder="free"))
    documents.update_document(acme, public, Changes(folder="legal/other"))
    shares.revoke_share(acme, shared, share.id)
    documents.update_document(acme, shared, Changes(folder="free"))
    assert documents.move_folder(SHARING, "legal", "free") == 1
    content = delivery.find(acme, public, "latest")
    assert content is not None
    assert content.revision == 2


def test_a_content_with_an_api_key_is_not_shared(shares: Shares, documents: Documents, acme: TenantScope) -> None:
    document_id = documents.store_document(acme, NewDocument("a.txt"), b"x" * 300_000 + make_key_text("live").encode()).id
    with pytest.raises(ApiKeyLeaked):
        shares.create_share(acme, document_id, NewShare())


def test_a_path_with_nul_finds_nothing(delivery: DeliveryPolicy, acme: TenantScope, document: str) -> None:
    published = Publications(delivery)
    published.publish(acme, document, NewPublication("a.txt"))
    assert published.find_public(acme, "a.txt") is not None
    assert published.find_public(acme, "a.txt\0") is None


def test_public_deliveries_are_counted_by_the_minute(documents: Documents, acme: TenantScope, document: str) -> None:
    counted = PublicDeliveries()
    for _ in range(3):
        counted.count("acme", document, 1, 5)
    counted.count("acme", "doc_gone", 1, 5)
    counted.flush()
    counted.count("acme", document, 1, 5)
    counted.flush()
    counted.flush()
    lines = downloads.list_downloads(acme, document, PageRequest()).items
    assert sum(line.count for line in lines) == 4
    assert sum(line.bytes for line in lines) == 20
    assert {(line.share_id, line.address, line.agent, line.outcome) for line in lines} == {(None, "", "", "complete")}


def test_addresses_and_browsers_are_stored_coarsely() -> None:
    assert shorten_address("192.0.2.77") == "192.0.2.0/24"
    assert shorten_address("::ffff:192.0.2.77") == "192.0.2.0/24"
    assert shorten_address("2001:db8:1:2::3") == "2001:db8:1::/48"
    assert shorten_address("unix") == ""
    firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"
    edge = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0 Safari/537.36 Edg/128.0"
    for text, family in ((firefox, "Firefox"), (edge, "Edge"), (edge[:-11], "Chrome"), ("curl/8.5", "curl"), ("", "other")):
        assert agent_family(text) == family
    assert agent_family(edge[:-11].replace("Chrome", "HeadlessChrome")) == "Chrome"
    assert agent_family("Slackbot-LinkExpanding 1.0") == "bot"
