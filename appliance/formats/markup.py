"""Parses Markdown, HTML and plain text into a small tree of headings, paragraphs, lists and tables, without active content."""

import re
from html import escape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

MAX_DEPTH = 24
LINK_SCHEMES = ("http", "https", "mailto")
_DROPPED = frozenset(
    {"script", "style", "head", "template", "noscript", "iframe", "object", "svg", "math", "select", "textarea", "title"}
)
_VOID = frozenset({"br", "hr", "img", "input", "meta", "link", "col", "wbr", "source", "area", "base", "embed", "track"})
_KINDS = {
    **{f"h{level}": f"h{level}" for level in range(1, 7)},
    **dict.fromkeys(
        ("p", "div", "section", "article", "header", "footer", "main", "figure", "figcaption", "address", "dt", "center"), "p"
    ),
    **dict.fromkeys(("strong", "b", "th_"), "strong"),
    **dict.fromkeys(("em", "i", "cite", "var", "dfn"), "em"),
    **dict.fromkeys(("del", "s", "strike"), "del"),
    **dict.fromkeys(("u", "ins"), "u"),
    **dict.fromkeys(("code", "kbd", "samp", "tt"), "code"),
    **{name: name for name in ("pre", "blockquote", "ul", "ol", "li", "table", "tr", "th", "td", "sub", "sup", "a", "br", "hr")},
    "dd": "blockquote",
    "dl": "p",
}
_IMPLICITLY_CLOSED = {  # The open elements that a start tag closes implicitly.
    "li": {"li"},
    "tr": {"tr", "td", "th"},
    "td": {"td", "th"},
    "th": {"td", "th"},
    "p": {"p"},
    "dt": {"dd", "dt"},
    "dd": {"dt", "dd"},
}
_CLOSING_SCOPE = {"li": {"ul", "ol"}, "tr": {"table"}, "td": {"table", "tr"}, "th": {"table", "tr"}, "dt": {"dl"}, "dd": {"dl"}}
_SPACE = re.compile(r"[ \t\r\n\f]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")

Node = dict[str, Any]  # {"k": kind, "c": [nodes and texts]} and for a link "h", for a list "n"


def load() -> None:
    import markdown_it  # noqa: F401


def markdown_to_html(text: str) -> str:
    """Render CommonMark with tables and strikethrough; HTML inside it is escaped."""
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": MAX_DEPTH}).enable(
        ["table", "strikethrough"]
    )
    return str(renderer.render(text))


def text_to_html(text: str) -> str:
    """Render plain text as `<pre>` blocks, one per paragraph."""
    return "".join(f"<pre>{escape(block)}</pre>\n" for block in re.split(r"\n{2,}", text.strip("\n")) if block.strip())


def parse_plain_text(text: str) -> list[Node]:
    """Plain text as a tree: one paragraph per block of text, with its line breaks."""
    paragraphs = []
    for block in re.split(r"\n[ \t]*\n", _CONTROL.sub("", text)):
        lines = block.strip("\n").split("\n")
        children: list[Any] = [lines[0]]
        for line in lines[1:]:
            children += [{"k": "br", "c": []}, line]
        if block.strip():
            paragraphs.append({"k": "p", "c": children})
    return paragraphs


def parse_html(text: str) -> list[Node]:
    """Parse HTML into a tree; tolerates malformed HTML."""
    reader = _TreeBuilder()
    reader.feed(_CONTROL.sub("", text))
    reader.close()
    return [node for node in reader.root["c"] if isinstance(node, dict) or node.strip()]


class _TreeBuilder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root: Node = {"k": "root", "c": []}
        self._open: list[tuple[str, Node]] = [("", self.root)]
        self._dropped: list[str] = []

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Treat `<![…` as a comment, as browsers do; the library raises an AssertionError for some of them."""
        return self.parse_bogus_comment(i, report)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._dropped or tag in _DROPPED:
            if tag not in _VOID:
                self._dropped.append(tag)
            return
        self._close_implied(tag)
        attributes = dict(attrs)
        if tag == "img":
            if alternative := (attributes.get("alt") or "").strip():
                self._add(f"[{alternative}]")
            return
        kind = _KINDS.get(tag)
        if kind is None or (tag not in _VOID and len(self._open) >= MAX_DEPTH):
            return  # Its content is still shown.
        node: Node = {"k": kind, "c": []}
        if kind == "a":
            node["h"] = _safe_link(attributes.get("href") or "")
        elif kind == "ol":
            start = attributes.get("start") or ""
            node["n"] = int(start) if start.isdigit() and len(start) < 7 else 1
        self._add(node)
        if tag not in _VOID:
            self._open.append((tag, node))

    def handle_endtag(self, tag: str) -> None:
        if self._dropped:
            if tag in self._dropped:
                while self._dropped.pop() != tag:
                    pass
            return
        for place in range(len(self._open) - 1, 0, -1):
            if self._open[place][0] == tag:
                del self._open[place:]
                return

    def handle_data(self, data: str) -> None:
        if self._dropped:
            return
        is_pre = any(tag == "pre" for tag, _ in self._open)
        if is_pre:
            self._add(data)
        elif self._open[-1][1]["k"] not in ("table", "tr", "ul", "ol"):
            self._add(_SPACE.sub(" ", data))

    def _close_implied(self, tag: str) -> None:
        ended, within = _IMPLICITLY_CLOSED.get(tag, set()), _CLOSING_SCOPE.get(tag, set())
        for place in range(len(self._open) - 1, 0, -1):
            name = self._open[place][0]
            if name in within:
                return
            if name in ended:
                del self._open[place:]
                if tag != "tr":
                    return

    def _add(self, node: Any) -> None:
        self._open[-1][1]["c"].append(node)


def _safe_link(target: str) -> str:
    """The link, if its scheme is http, https or mailto; otherwise empty."""
    try:
        scheme = urlsplit(target.strip()).scheme.lower()
    except ValueError:
        return ""
    return target.strip() if scheme in LINK_SCHEMES else ""
