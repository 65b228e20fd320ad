"""Documents in the console: lists, previews, reviews and uploads."""

import html
import io
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from PIL import Image

from appliance.console.frame import routing
from tests.api.resources import fresh
from tests.console.browser import Browser

SignedIn = Callable[[str], Browser]
HOSTILE = "<script>alert(1)<script> & 'x'"


@pytest.fixture
def document(acme: httpx.Client, signed_in: SignedIn) -> dict[str, Any]:
    """A document of two revisions whose every text is hostile."""
    form = {
        "name": "_script_alert(1)&'.txt",
        "folder": "in",
        "tags": HOSTILE,
        "metadata": '{"<b>": "<img src=x onerror=alert(1)>"}',
    }
    answer = acme.post("/api/v1/documents", files={"file": ("a.txt", b"<script>alert(1)</script>")}, data=form)
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()["data"]
    path = f"/api/v1/documents/{document['id']}/revisions"
    acme.post(path, params={"comment": HOSTILE}, content=b"two <b>").raise_for_status()
    return document


def ask(acme: httpx.Client, document: dict[str, Any], *logins: str, **more: Any) -> str:
    answer = acme.post(f"/api/v1/documents/{document['id']}/reviews", json={"reviewers": list(logins), **more})
    assert answer.status_code == 201, answer.text
    assert answer.json()["data"]["review_url"].endswith(f"/console/documents/{document['id']}")
    return str(answer.json()["data"]["id"])


def get_page(browser: Browser, path: str, status: int = 200) -> str:
    page = browser.get(browser.at("acme", f"/console/documents{path}"))
    assert page.status_code == status
    return page.text


def test_hostile_texts_are_escaped(signed_in: SignedIn, acme: httpx.Client, document: dict[str, Any]) -> None:
    ask(acme, document, "viewer@acme.test", note=HOSTILE)
    viewer = signed_in("viewer@acme.test")
    for text in (get_page(viewer, ""), get_page(viewer, f"/{document['id']}"), get_page(viewer, f"?search={HOSTILE}")):
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;alert(1)" in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in get_page(viewer, f"/{document['id']}")


def test_a_content_is_downloaded_and_never_displayed(signed_in: SignedIn, document: dict[str, Any]) -> None:
    viewer = signed_in("viewer@acme.test")
    address = viewer.at("acme", f"/console/documents/{document['id']}/content")
    for query, data in (("", b"two <b>"), ("?revision=1", b"<script>alert(1)</script>")):
        answer = viewer.get(address + query)
        assert (answer.status_code, answer.content) == (200, data)
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
    for query, status in (("?revision=3", 404), ("?revision=x", 422)):
        assert viewer.get(address + query).status_code == status


def test_only_the_named_reviewers_decide(signed_in: SignedIn, acme: httpx.Client, document: dict[str, Any]) -> None:
    review = ask(acme, document, "viewer@acme.test", "operator@acme.test", needed=2, note="the price")
    viewer, operator, builder = (signed_in(f"{role}@acme.test") for role in ("viewer", "operator", "builder"))
    path = f"/{document['id']}/reviews/{review}"
    assert document["id"] in get_page(viewer, "").split("Folders and documents by name")[0]
    assert "can decide this" in get_page(builder, f"/{document['id']}").lower()
    assert f'action="/console/documents{path}"' not in get_page(builder, f"/{document['id']}")
    address = viewer.at("acme", f"/console/documents{path}")
    refused = builder.post(address, {"decision": "approve"})
    assert (refused.status_code, "ask one of them" in refused.text) == (403, True)
    assert viewer.post(address, {"decision": "maybe", "comment": "kept"}).status_code == 422
    assert viewer.post(address, {"decision": "approve", "comment": "good"}).status_code == 200
    assert viewer.post(address, {"decision": "approve"}).status_code == 409
    assert "you have already decided" in get_page(viewer, f"/{document['id']}").lower()
    assert acme.get(f"/api/v1/documents/{document['id']}").json()["data"]["review"] == "pending"
    operator.post(address, {"decision": "approve"})
    approved = acme.get(f"/api/v1/documents/{document['id']}").json()["data"]
    assert (approved["review"], approved["approved_revision"]) == ("approved", 2)
    closed = acme.get(f"/api/v1/documents/{document['id']}/reviews/{review}").json()["data"]
    assert [(each["reviewer"], each["decision"], each["comment"]) for each in closed["decisions"]] == [
        ("viewer@acme.test", "approve", "good"), ("operator@acme.test", "approve", ""),
    ]  # fmt: skip


def test_a_review_is_requested_on_the_page(signed_in: SignedIn, acme: httpx.Client, document: dict[str, Any]) -> None:
    builder = signed_in("builder@acme.test")
    address = builder.at("acme", f"/console/documents/{document['id']}/reviews")
    form: dict[str, str | list[str]] = {"revision": "2", "needed": "1", "days": "7", "note": "look"}
    assert builder.post(address, form).status_code == 422
    assert builder.post(address, {**form, "reviewers": ["viewer@acme.test"], "days": "9"}).status_code == 422
    assert builder.post(address, {**form, "reviewers": ["viewer@acme.test", "operator@acme.test"]}).status_code == 200
    (review,) = acme.get(f"/api/v1/documents/{document['id']}/reviews").json()["data"]
    assert (review["status"], review["reviewers"], review["note"]) == (
        "pending",
        ["viewer@acme.test", "operator@acme.test"],
        "look",
    )
    assert "Request a review" not in get_page(builder, f"/{document['id']}")
    assert builder.post(f"{address}/{review['id']}/withdraw", {}).status_code == 200
    assert acme.get(f"/api/v1/documents/{document['id']}/reviews/{review['id']}").json()["data"]["status"] == "withdrawn"


def test_documents_of_other_tenants_are_not_found(signed_in: SignedIn, acme: httpx.Client, document: dict[str, Any]) -> None:
    review = ask(acme, document, "viewer@acme.test")
    stranger = signed_in("owner@globex.test")
    for path in ("", "/content"):
        pages = [stranger.get(stranger.at("globex", f"/console/documents/{name}{path}")) for name in (document["id"], "doc_0")]
        assert [page.status_code for page in pages] == [404, 404]
    for path in ("reviews", f"reviews/{review}", f"reviews/{review}/withdraw"):
        form = {"decision": "approve", "revision": "1", "needed": "1", "days": "7", "reviewers": "owner@globex.test"}
        assert stranger.post(stranger.at("globex", f"/console/documents/{document['id']}/{path}"), form).status_code == 404
    assert acme.get(f"/api/v1/documents/{document['id']}").json()["data"]["review"] == "pending"


def upload(acme: httpx.Client, name: str, content: bytes, folder: str = "") -> str:
    """The id of a new document."""
    answer = acme.post("/api/v1/documents", params={"name": name, "folder": folder}, content=content)
    return str(answer.json()["data"]["id"])


def red_png() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (1000, 500), "red").save(out, "PNG")
    return out.getvalue()


def test_the_list_shows_previews_and_type_labels(signed_in: SignedIn, acme: httpx.Client, document: dict[str, Any]) -> None:
    viewer = signed_in("viewer@acme.test")
    word = fresh("thumb")
    names = (f"{word} & co.png", f"{word}.html", f"{word}-broken.png")
    contents = (red_png(), b"<!doctype html><img src=x onerror=alert(1)>", b"\x89PNG\r\n\x1a\nnothing " + word.encode())
    picture, page, broken = [upload(acme, name, content, word) for name, content in zip(names, contents, strict=True)]
    small = f"/console/documents/{picture}/preview?revision=1&amp;width=160"
    listing = get_page(viewer, f"?folder={word}")
    assert f'src="{small}" alt="Preview of {html.escape(names[0])}" width="40" height="40" loading="lazy"' in listing
    assert f"/console/documents/{page}/preview" not in listing
    assert (listing.count(">PNG</span>"), listing.count(">HTML</span>")) == (2, 1)
    assert f"/console/documents/{broken}/preview" in listing
    get_page(viewer, f"/{broken}/preview?revision=1&width=160", 422)
    assert f"/console/documents/{broken}/preview" not in get_page(viewer, f"?folder={word}"), "known to be broken"
    preview = viewer.get(viewer.at("acme", html.unescape(small)))
    assert preview.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert Image.open(io.BytesIO(preview.content)).size == (160, 80)
    get_page(viewer, f"/{picture}/preview?revision=1&width=1280", 422)


def test_a_picture_is_shown_on_its_page(signed_in: SignedIn, acme: httpx.Client, document: dict[str, Any]) -> None:
    picture = upload(acme, "red.png", red_png())
    viewer = signed_in("viewer@acme.test")
    address = f"/console/documents/{picture}/preview?revision=1"
    (line,) = (line for line in get_page(viewer, f"/{picture}").splitlines() if 'class="preview"' in line)
    for part in (f'src="{address}"', 'alt="Preview of red.png"', 'width="640" height="320"'):
        assert part in line
    preview = viewer.get(viewer.at("acme", address))
    assert (preview.status_code, preview.headers["content-type"]) == (200, "image/webp")
    assert preview.headers["cache-control"] == "private, max-age=86400, immutable"
    assert preview.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert Image.open(io.BytesIO(preview.content)).size == (640, 320)
    assert 'class="preview"' not in get_page(viewer, f"/{document['id']}")
    for wrong, status in ((f"/{document['id']}/preview?revision=1", 404), (f"/{picture}/preview", 422)):
        get_page(viewer, wrong, status)


def rows(text: str) -> list[str]:
    """What the rows of the list lead to."""
    return re.findall(r'<a class="cover" href="/console/documents([^"]*)"', text)


def test_folders_are_browsed_and_searched(signed_in: SignedIn, acme: httpx.Client) -> None:
    viewer, word = signed_in("viewer@acme.test"), fresh("shelf")
    top, inner = upload(acme, f"{word} b.txt", b"b", word), upload(acme, f"{word} a&b.txt", b"<i>", f"{word}/in & out")
    deep, other = upload(acme, f"{word} c.txt", b"c", f"{word}/in & out/x"), upload(acme, f"{word}.txt", b"d", f"{word}-not")
    inside = f"{word}%2Fin+%26+out"
    assert {f"?folder={word}", f"?folder={word}-not"} <= set(rows(get_page(viewer, "")))
    page = get_page(viewer, f"?folder={word}")
    assert rows(page) == [f"?folder={inside}", f"/{top}"]
    assert ("3 documents in this folder and its subfolders." in page, ">2 documents<" in page) == (True, True)
    page = get_page(viewer, f"?folder={inside}")
    assert rows(page) == [f"?folder={inside}%2Fx", f"/{inner}"]
    (crumbs,) = re.findall(r'<ol class="crumbs">(.*?)</ol>', page, re.DOTALL)
    assert re.findall(r'href="([^"]+)">([^<]+)', crumbs) == [
        ("/console/documents", "Documents"), (f"/console/documents?folder={word}", word),
    ]  # fmt: skip
    assert "<h1 class=\"break\">in &amp; out</h1>" in page
    assert rows(get_page(viewer, f"?folder={word}&search={word}")) == [f"/{deep}", f"/{inner}", f"/{top}"]
    assert rows(get_page(viewer, f"?folder={word}&search={word}&in=all")) == [f"/{other}", f"/{deep}", f"/{inner}", f"/{top}"]
    assert rows(get_page(viewer, f"?folder={inside}&below=1")) == [f"/{deep}", f"/{inner}"]
    assert "This folder is empty" in get_page(viewer, f"?folder={word}/none")
    assert f'href="/console/documents?folder={inside}"' in get_page(viewer, f"/{deep}")
    for query in ("?folder=../x", "?folder=a%00", "?cursor=x", "?cursor=/x", "?below=1&cursor=/x"):
        assert 400 <= viewer.get(viewer.at("acme", f"/console/documents{query}")).status_code < 500
    stranger = signed_in("owner@globex.test")
    assert "This folder is empty" in stranger.get(stranger.at("globex", f"/console/documents?folder={word}")).text


def test_a_folder_is_paged(signed_in: SignedIn, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer, word = signed_in("viewer@acme.test"), fresh("turned")
    for number in range(3):
        upload(acme, f"{number}.txt", b"x", word)
        upload(acme, "x.txt", b"x", f"{word}/{number}")
    monkeypatch.setattr(routing, "PAGE_ROWS", 2)
    for order in ("", "&order=newest"):
        seen, query = [], f"?folder={word}{order}"
        while query:
            page = get_page(viewer, query)
            seen += rows(page)
            link = re.search(r'href="/console/documents([^"]+)" data-testid="next-page"', page)
            query = html.unescape(link[1]) if link else ""
        folders = [f"?folder={word}%2F{number}{html.escape(order)}" for number in range(3)]
        assert (seen[:3], len(seen), len(set(seen))) == (folders, 6, 6)


def test_files_are_uploaded_into_the_open_folder(signed_in: SignedIn, acme: httpx.Client) -> None:
    builder, word = signed_in("builder@acme.test"), fresh("into")
    upload(acme, "a.txt", b"a", word)
    page = get_page(builder, f"?folder={word}")
    assert f'action="/console/documents/-/upload?folder={word}"' in page
    assert f'name="folder" value="{word}"' in page
    at = builder.at("acme", f"/console/documents/-/upload?folder={word}")
    answer = builder.upload(at, ("b.txt", b"b"), {"folder": word, "tags": ""})
    assert (builder.url.endswith(f"/console/documents?folder={word}"), len(rows(answer.text))) == (True, 2)
    refused = builder.upload(at, ("c.txt", b"c"), {"folder": f"{word}/../x", "tags": "kept"})
    assert (refused.status_code, len(rows(refused.text))) == (422, 2)
    assert f'value="{word}/../x"' in refused.text
