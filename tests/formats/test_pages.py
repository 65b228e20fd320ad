"""PDF: text of pages, pages set from Markdown, HTML and text, hostile content refused or made harmless."""

import io
from collections.abc import Callable
from typing import Any

import pypdfium2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appliance.formats import FormatFailed
from appliance.formats.errors import ContentInvalid
from appliance.formats.markup import MAX_DEPTH, markdown_to_html, parse_html, parse_plain_text
from appliance.formats.pdf_pages import parse_page_selection
from appliance.formats.typesetting import _html

from .conftest import Perform

FailureOf = Callable[..., FormatFailed]
MARKDOWN = (
    """# Invoice 4711

Dear *Ms.* **Größe**, total `12.50` ~~13~~ [site](https://example.org/a?b=1&c="2")
[bad](javascript:alert(1)) <script>alert(2)</script>

| Item | Price |
|------|-------|
| Tea  | 1.50  |
| #eval("x") | $x^2$ |

1. one
2. two
   - nested

> quoted

```
#import "@preview/x"
```
"""
    + "\n\npage text\n" * 60
)


def pages_of(content: bytes) -> list[str]:
    document = pypdfium2.PdfDocument(content)
    return [document[number].get_textpage().get_text_bounded() for number in range(len(document))]


@pytest.fixture(scope="module")
def invoice(perform: Perform) -> bytes:
    return perform("convert", MARKDOWN.encode(), format="pdf").content


def test_markdown_is_typeset_as_pages(invoice: bytes, perform: Perform) -> None:
    pages = pages_of(invoice)
    assert len(pages) == 2
    for text in ("Invoice 4711", "Größe", "12.50", "Tea", "1.50", "nested", "quoted", "<script>", '#eval("x")', "$x^2$", "1 / 2"):
        assert text in pages[0].replace("\r\n", "\n"), text
    assert '#import "@preview/x"' in pages[0]
    assert pypdfium2.PdfDocument(invoice).get_metadata_value("Title") == "Invoice 4711"
    assert perform("convert", MARKDOWN.encode(), format="pdf").content == invoice


def test_links_lead_to_pages_only(invoice: bytes) -> None:
    assert b"https://example.org/a?b=1" in invoice
    assert b"/URI(javascript" not in invoice
    assert b"/JavaScript" not in invoice


def test_text_of_pages_is_read_page_by_page(perform: Perform, invoice: bytes, failure_of: FailureOf) -> None:
    result = perform("parse.pdf", invoice)
    assert [record["page"] for record in result.records] == [1, 2]
    assert "Dear Ms. Größe" in result.records[0]["text"]
    assert "\r" not in result.records[0]["text"]
    assert [record["page"] for record in perform("parse.pdf", invoice, pages="2").records] == [2]
    assert "has pages 1 to 2" in failure_of("parse.pdf", invoice, pages="3").message


def test_html_keeps_its_structure_and_loses_what_is_active(perform: Perform) -> None:
    content = (
        b"<h1 onclick=x>T&uuml;r</h1><script>evil()</script><p>a<b>b</b><img src=x alt=logo><p>c<ul><li>1<li>2</ul>"
        b"<table><tr><td>x<td>y</table>"
    )
    page = perform("convert", content, format="html", **{"from": "html"}).content.decode()
    assert "<h1>Tür</h1>" in page
    assert "<ul><li>1</li><li>2</li></ul>" in page
    assert "<tr><td>x</td><td>y</td></tr>" in page
    assert "[logo]" in page
    for text in ("script", "evil", "onclick", "<img"):
        assert text not in page
    assert "Tür" in pages_of(perform("convert", content, format="pdf", **{"from": "html"}).content)[0]


@pytest.mark.parametrize(
    "target", ["javascript:alert(1)", " JavaScript:alert(1)", "data:text/html,x", "file:///etc/passwd", "//x", "[::1"]
)
def test_unsafe_links_become_text(target: str) -> None:
    assert _html(parse_html(f'<p><a href="{target}">there</a></p>')[0]) == "<p>there</p>"


def test_text_keeps_its_lines(perform: Perform) -> None:
    page = pages_of(perform("convert", b"one\ntwo\n\n*three*", format="pdf", **{"from": "text"}).content)[0]
    assert page.replace("\r\n", "\n").startswith("one\ntwo\n*three*")


def test_paper_and_title_are_chosen(perform: Perform) -> None:
    content = perform("convert", b"x", format="pdf", paper="letter", landscape=True, title="A <b> & c", page_numbers=False).content
    document = pypdfium2.PdfDocument(content)
    assert [round(each) for each in document[0].get_size()] == [792, 612]
    assert document.get_metadata_value("Title") == "A <b> & c"
    assert pages_of(content)[0].strip() == "x"


@pytest.mark.parametrize("content", [b"", b"%PDF-1.7\n", b"hello", b"%PDF-1.4\ntrailer<</Root 1 0 R>>"])
def test_invalid_pdfs_are_refused(failure_of: FailureOf, content: bytes) -> None:
    failed = failure_of("parse.pdf", content)
    assert (failed.code, failed.failure_class) == ("content_invalid", "validation")


def outcome(perform: Perform, content: bytes) -> str:
    try:
        perform("parse.pdf", content)
    except FormatFailed as failed:
        return failed.failure_class
    return "read"


def test_damaged_pdfs_are_read_or_refused(perform: Perform, invoice: bytes) -> None:
    for step in range(1, 12):
        content = bytearray(invoice)
        for at in range(step * 7, len(content), 997 + step):
            content[at] ^= 0x5A
        assert outcome(perform, bytes(content)) in ("read", "validation", "memory")


@pytest.mark.parametrize(("selection", "expected"), [(None, [1, 2, 3, 4]), ("2", [2]), ("3-4, 1", [1, 3, 4])])
def test_pages_are_chosen_by_number(selection: str | None, expected: list[int]) -> None:
    assert list(parse_page_selection(selection, 4)) == expected


@pytest.mark.parametrize("selection", ["0", "5", "3-2", "a", "", "1-", "-1", "1,,2", "9" * 40])
def test_missing_pages_are_refused(selection: str) -> None:
    with pytest.raises(ContentInvalid):
        list(parse_page_selection(selection, 4))


def depth(node: Any) -> int:
    return 0 if isinstance(node, str) else 1 + max((depth(each) for each in node["c"]), default=0)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("<>/=abp ulio\"'&;#x0trdhscriptn-![]*_`|\n"), max_size=200))
@example("<![0")
@example("a<![0>b")
@example("<![CDATA[<script>]]>")
def test_any_text_becomes_a_bounded_tree_without_active_content(text: str) -> None:
    for nodes in (parse_html(text), parse_html(markdown_to_html(text)), parse_plain_text(text)):
        assert max((depth(node) for node in nodes), default=0) <= MAX_DEPTH + 1
        assert "<script" not in "".join(_html(node) for node in nodes)


def test_deeply_nested_markup_is_typeset(perform: Perform) -> None:
    content = b"<blockquote>" * 500 + b"deep" + b"</blockquote>" * 500
    assert "deep" in pages_of(perform("convert", content, format="pdf", **{"from": "html"}).content)[0]
    assert io.BytesIO(perform("convert", b"- " * 300 + b"x", format="pdf").content).read(4) == b"%PDF"
