"""Every destructive action is confirmed first, beside a sentence that says what it does."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.console import blueprint
from appliance.console.blueprint import BASE_PAGES, PAGES
from tests.architecture.source_tree import ROOT

CONSOLE = ROOT / "ui" / "templates" / "console"
DESTROYING = frozenset({
    "cancel", "deactivate", "delete", "disconnect", "discard", "drop", "empty", "end", "erase", "forget", "purge", "release",
    "remove", "reset", "revoke", "roll", "unpublish", "withdraw",
})  # fmt: skip
# Verbs that create something, decide a request, can be undone on the same page, or confirm on their own page (act).
HARMLESS = frozenset({
    "accept", "acknowledge", "act", "activate", "add", "adopt", "answer", "apply", "approve", "ask", "begin", "change", "check",
    "choose", "claim", "close", "compare", "confirm", "connect", "copy", "create", "decide", "deliver", "deploy", "disable",
    "dismiss", "download", "edit", "enable", "execute", "explain", "export", "filter", "find", "follow", "guess", "hold", "import",
    "install",
    "invite", "issue", "look", "make", "move", "name", "note", "open", "pause", "pin", "plan", "preview", "prove", "publish", "put",
    "read", "rename", "replay", "request", "resume", "retain", "retry", "rotate", "run", "save", "send", "set", "settle",
    "share", "show", "sign", "start", "store", "switch", "test", "try", "upload", "validate", "verify", "write",
})  # fmt: skip
FORM = re.compile(r'<form\b[^>]*action="(?P<action>[^"]*)"[^>]*>(?P<body>.*?)</form>', re.DOTALL)
SENTENCE = re.compile(r"<p\b[^>]*>[^<]{15,}", re.DOTALL)


@dataclass(frozen=True)
class Form:
    """A form of a template; `is_confirmed` when it opens only after a first click or requires an input."""

    template: str
    action: str
    body: str
    is_confirmed: bool


def forms_of(path: Path) -> Iterator[Form]:
    text = path.read_text("utf8")
    for match in FORM.finditer(text):
        before = text[: match.start()]
        is_inside = before.count("<details") > before.count("</details>")
        yield Form(path.name, match["action"], match["body"], is_inside or " required" in match["body"])


FORMS = [form for path in sorted(CONSOLE.rglob("*.html")) for form in forms_of(path)]
POSTS = {route.path: route.handler.__name__ for route in PAGES if route.method == "POST"}
POSTS |= {route.path: route.handler.__name__ for route in BASE_PAGES if route.method == "POST"}
ENDS = sorted(path for path, name in POSTS.items() if name.split("_")[0] in DESTROYING)


def rest_of(path: str) -> str:
    """The part of a path after its last parameter: `<id>` in a route, `{{ id }}` in a form's address."""
    return re.split(r">|\}\}", path)[-1]


def shape_of(path: str) -> str:
    """A path with `*` for each parameter."""
    return re.sub(r"<[^>]*>|\{\{.*?\}\}", "*", path)


# A confirmation page, reached by a link to the same address, explains the action.
OWN_PAGES = {shape_of(route.path) for route in PAGES if route.method == "GET"}


def test_the_name_of_every_handler_says_whether_it_is_destructive() -> None:
    assert blueprint.AREAS
    unknown = {f"{path}: {name}" for path, name in POSTS.items() if name.split("_")[0] not in DESTROYING | HARMLESS}
    assert unknown == set(), "say in DESTROYING or HARMLESS what this verb does; a verb that destroys needs a confirmation"


@pytest.mark.parametrize("path", ENDS)
def test_every_destructive_form_is_confirmed_with_an_explanation(path: str) -> None:
    mine = [form for form in FORMS if rest_of(form.action) == rest_of(path)]
    assert mine, "no form leads there"
    is_own_page = shape_of(path) in OWN_PAGES
    silent = [
        form.template
        for form in mine
        if not ((is_own_page or shape_of(form.action) in OWN_PAGES or form.is_confirmed) and SENTENCE.search(form.body))
    ]
    assert silent == [], "put the form into a details.ask with a sentence (<p>) that says what it does and what stays"


def test_a_form_without_a_sentence_is_detected() -> None:
    (bare,) = FORM.finditer('<form method="post" action="/x/{{ id }}/delete"><button>Delete</button></form>')
    assert SENTENCE.search(bare["body"]) is None
    assert rest_of(bare["action"]) == "/delete"
