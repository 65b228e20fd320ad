"""Renders Markdown, HTML or plain text as PDF or an HTML page."""

import json
from html import escape
from pathlib import Path
from typing import Any, cast

from . import encodings, markup
from .errors import ContentInvalid
from .request import Request

PAPERS = {"a4": "a4", "a5": "a5", "a3": "a3", "letter": "us-letter", "legal": "us-legal"}
MAX_CHARACTERS = 5_000_000
_TEMPLATE = Path(__file__).with_name("pages.typ")
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}"
    "table{border-collapse:collapse}th,td{border:1px solid #bbb;padding:.3rem .6rem;text-align:left}"
    "pre{background:#f5f5f5;padding:.6rem;overflow:auto;white-space:pre-wrap}"
    "blockquote{border-left:3px solid #ccc;margin-left:0;padding-left:1rem}"
)
_TAGS = {f"h{level}" for level in range(1, 7)} | {
    *("p", "strong", "em", "del", "u", "code", "pre", "blockquote", "ul", "ol", "li", "table", "tr", "th", "td", "sub", "sup"),
}
_libraries: dict[str, Any] = {}


def load() -> None:
    """Load the typesetter, its embedded fonts and the template, because the worker cannot open files later."""
    encodings.load()
    markup.load()
    import pypdfium2  # noqa: F401
    import typst

    _libraries["template"] = _TEMPLATE.read_bytes()
    _libraries["fonts"] = typst.Fonts(include_system_fonts=False, include_embedded_fonts=True)


def convert(request: Request) -> dict[str, Any]:
    """Write the content (`from: markdown | html | text`) as `format: pdf | html`."""
    text, encoding = encodings.open_text(request.content, request.options.get("encoding"))
    try:
        source = text.read()
    except UnicodeError as error:
        raise encodings.decoding_error(error, encoding) from error
    if len(source) > MAX_CHARACTERS:
        raise ContentInvalid(f"the content has {len(source)} characters; the maximum is {MAX_CHARACTERS}")
    nodes = _parse_source(source.replace("\r\n", "\n").replace("\r", "\n"), request.option("from", "markdown"))
    title = request.option("title", "") or _first_heading(nodes)
    if request.options["format"] == "html":
        request.output.write(_html_page(nodes, title, request.option("language", "en")).encode())
        return {"encoding": encoding}
    return {"encoding": encoding, "pages": _write_pdf(nodes, title, request)}


def _parse_source(source: str, kind: str) -> list[markup.Node]:
    if kind == "text":
        return markup.parse_plain_text(source)
    return markup.parse_html(markup.markdown_to_html(source) if kind == "markdown" else source)


def _first_heading(nodes: list[markup.Node]) -> str:
    for node in nodes:
        if node["k"] in ("h1", "h2"):
            return _plain_text(node)
    return ""


def _plain_text(node: Any) -> str:
    return node if isinstance(node, str) else "".join(_plain_text(each) for each in node["c"])


def _write_pdf(nodes: list[markup.Node], title: str, request: Request) -> int:
    """Write the PDF with the creation time `made_at` (seconds since 1970); returns its number of pages."""
    import pypdfium2
    import typst

    document = {
        "nodes": nodes, "title": title,
        "paper": PAPERS[request.option("paper", "a4")], "language": request.option("language", "en"),
        "landscape": request.option("landscape", False), "page_numbers": request.option("page_numbers", True),
    }  # fmt: skip
    inputs = {"given": json.dumps(document, ensure_ascii=False)}
    try:
        compiler = typst.Compiler(_libraries["template"], root="/", font_paths=_libraries["fonts"], sys_inputs=inputs)
        content = cast(bytes, compiler.compile(format="pdf", timestamp=request.option("made_at", 0)))
    except RuntimeError as error:  # The base class of the typesetter's errors.
        raise ContentInvalid(f"the content cannot be converted to PDF: {str(error)[:200]}") from error
    request.output.write(content)
    return len(pypdfium2.PdfDocument(content))


def _html_page(nodes: list[markup.Node], title: str, language: str) -> str:
    body = "".join(_html(node) for node in nodes)
    return (
        f'<!doctype html>\n<html lang="{escape(language)}">\n<head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _html(node: Any) -> str:
    if isinstance(node, str):
        return escape(node, quote=False)
    kind, inner = node["k"], "".join(_html(each) for each in node["c"])
    if kind in ("br", "hr"):
        return f"<{kind}>"
    if kind == "a":
        return f'<a href="{escape(node["h"])}" rel="noopener noreferrer">{inner}</a>' if node["h"] else inner
    if kind == "ol" and node["n"] != 1:
        return f'<ol start="{node["n"]}">{inner}</ol>'
    return f"<{kind}>{inner}</{kind}>" if kind in _TAGS else inner
