"""The text of documents over HTTP: extracted soon after the upload, and found by search with a snippet."""

import httpx

from tests.api.documents.test_documents import DOCUMENTS, assert_refused, content, upload
from tests.processes.world import wait_until


def test_a_text_is_extracted_searched_and_downloaded(acme: httpx.Client, globex: httpx.Client) -> None:
    document = upload(acme, b"The quick <b>brown</b> zyxophone", "zyx.txt")
    assert document["text_state"] == "pending"
    path = f"{DOCUMENTS}/{document['id']}"
    early = acme.get(f"{path}/text")
    assert early.status_code in (200, 202)
    if early.status_code == 202:
        assert early.headers["retry-after"]
    wait_until(lambda: acme.get(path).json()["data"]["text_state"] == "ready", 60)
    text = acme.get(f"{path}/text")
    assert (text.content, text.headers["content-type"]) == (content(acme, document).content, "text/plain; charset=utf-8")
    assert text.headers["content-security-policy"] == "default-src 'none'; sandbox"
    (listed,) = acme.get(DOCUMENTS, params={"search": "zyxo brown"}).json()["data"]
    assert (listed["id"], listed["snippet"]) == (
        document["id"],
        "The quick &lt;b&gt;<mark>brown</mark>&lt;/b&gt; <mark>zyxophone</mark>",
    )
    assert globex.get(DOCUMENTS, params={"search": "zyxo"}).json()["data"] == []
    assert_refused(acme.get(DOCUMENTS, params={"search": '"*'}), 400, "invalid_request", "/search")


def test_a_content_without_text_has_none(acme: httpx.Client) -> None:
    document = upload(acme, b"\x00\x01\x02", "a.bin")
    assert document["text_state"] == "none"
    assert_refused(acme.get(f"{DOCUMENTS}/{document['id']}/text"), 404, "not_found")
    assert_refused(acme.get(f"{DOCUMENTS}/{document['id']}/text", params={"revision": 2}), 404, "not_found")
