"""The web APIs that popular packages expect, as far as they reach nothing outside of the sandbox."""

from __future__ import annotations

import re
from typing import Any

import pytest

from appliance.sandbox import Entropy, Pool
from tests.sandbox.conftest import Run


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return [...new TextEncoder().encode('aä€😀\\ud800')]", [97, 195, 164, 226, 130, 172, 240, 159, 152, 128, 239, 191, 189]),
        ("return new TextEncoder().encodeInto('a😀', new Uint8Array(3))", {"read": 1, "written": 1}),
        ("return new TextDecoder().decode(new TextEncoder().encode('\\ufeffaä€😀'))", "aä€😀"),
        ("return new TextDecoder().decode(new Uint8Array([0xc3, 0x28, 0xf0, 0x9f, 0x41, 0xed]))", "\ufffd(\ufffdA\ufffd"),
        ("return new TextDecoder('latin1').decode(new Uint8Array([0xe4, 0x80]))", "ä€"),
        ("return new TextDecoder('utf-16le').decode(new Uint8Array([0xe4, 0, 0x3d, 0xd8, 0, 0xde]))", "ä😀"),
        (
            ("const d = new TextDecoder(), a = new Uint8Array([0xe2, 0x82]);"
            "return d.decode(a, {stream: true}) + d.decode(new Uint8Array([0xac]))"),
            "€",
        ),
        (
            ("const a: any = {d: new Date(0), m: new Map([[1, new Set([2])]]), b: new Uint8Array([1, 2]), n: [undefined]};"
            "a.self = a; const c = structuredClone(a); c.b[0] = 9;"
            "return [c !== a, c.self === c, c.d.getTime(), c.m.get(1).has(2), a.b[0], c.n.length, 0 in c.n]"),
            [True, True, 0, True, 1, 1, True],
        ),
        ("return structuredClone(new TypeError('x')) instanceof TypeError", True),
        (
            ("const c = new AbortController(); let n = 0; c.signal.addEventListener('abort', () => n++); c.abort(); c.abort();"
            "return [n, c.signal.aborted, c.signal.reason.name, AbortSignal.any([c.signal]).aborted]"),
            [1, True, "AbortError", True],
        ),
        (
            ("const b = new Blob(['aä', new Uint8Array([33])], {type: 'Text/Plain'});"
            "return [b.size, b.type, await b.text(), await b.slice(1, 3).text()]"),
            [4, "text/plain", "aä!", "ä"],
        ),
        ("return clearTimeout(undefined) === undefined", True),
    ],
)
def test_web_apis_follow_the_standards(run: Run, body: str, expected: Any) -> None:
    outcome = run(body)
    assert outcome.failure is None, outcome.failure
    assert outcome.output == expected


@pytest.mark.parametrize(
    ("url", "base", "expected"),
    [
        ("https://user:p%40ss@EXAMPLE.com:443/a/./b/../c?x=1&y=ä#f g", None, "https://user:p%40ss@example.com/a/c?x=1&y=%C3%A4#f%20g"),
        ("../b?x#y", "https://example.com/a/c/d", "https://example.com/a/b?x#y"),
        ("//other/x", "https://example.com/a", "https://other/x"),
        ("?q", "https://example.com/a?b#c", "https://example.com/a?q"),
        ("#h", "https://example.com/a?b", "https://example.com/a?b#h"),
        ("", "https://example.com/a?b#c", "https://example.com/a?b"),
        ("/p", "http://h:8080/a", "http://h:8080/p"),
        ("http:\\\\h\\a b", None, "http://h/a%20b"),
        ("https://müller.de/", None, "https://xn--mller-kva.de/"),
        ("https://例え.jp", None, "https://xn--r8jz45g.jp/"),
        ("http://0x7f.1/", None, "http://127.0.0.1/"),
        ("http://[2001:DB8:0:0:1::]/", None, "http://[2001:db8:0:0:1::]/"),
        ("http://[::1.2.3.4]:99", None, "http://[::102:304]:99/"),
        ("mailto:a@b.c?subject=x", None, "mailto:a@b.c?subject=x"),
        ("data:text/plain,a b", None, "data:text/plain,a b"),
        ("file:///C|/x/../y", None, "file:///C:/y"),
        ("foo://h/a/../b", None, "foo://h/b"),
        ("  https://example.com\n/x ", None, "https://example.com/x"),
        ("no url", None, None),
        ("http://", None, None),
        ("http://h:99999/", None, None),
        ("http://a b/", None, None),
        ("http://1.2.3.256/", None, None),
        ("http://[1::2::3]/", None, None),
    ],
)
def test_urls_are_parsed_as_the_standard_says(run: Run, url: str, base: str | None, expected: str | None) -> None:
    outcome = run("return URL.parse(input.url, input.base ?? undefined)?.href ?? null", {"url": url, "base": base})
    assert outcome.failure is None
    assert outcome.output == expected


def test_the_parts_of_an_address_can_be_changed(run: Run) -> None:
    body = """const u = new URL("https://example.com/a?x=1");
    u.searchParams.append("y", "a b&c"); u.searchParams.delete("x"); u.hash = "#h"; u.pathname = "/é"; u.port = "8443";
    u.protocol = "http";
    const p = new URLSearchParams([["b", "2"], ["a", "1"], ["b", "3"]]); p.sort();
    return [u.href, u.origin, u.host, String(p), p.getAll("b"), [...p.keys()], p.size, new URLSearchParams({q: "ä+ "}).toString(),
      new URLSearchParams("?a=%C3%A4+x&b").get("a"), JSON.stringify({u})]"""
    assert run(body).output == [
        "http://example.com:8443/%C3%A9?y=a+b%26c#h", "http://example.com:8443", "example.com:8443", "a=1&b=2&b=3", ["2", "3"],
        ["a", "b", "b"], 3, "q=%C3%A4%2B+", "ä x", '{"u":"http://example.com:8443/%C3%A9?y=a+b%26c#h"}',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("setTimeout(() => {}, 10)", "await api.wait.for('10s')"),
        ("setInterval(() => {}, 10)", "await api.wait.for('10s')"),
        ("AbortSignal.timeout(10)", "await api.wait.for('10s')"),
        ("structuredClone(() => 1)", "could not be cloned"),
        ("new TextDecoder('shift_jis')", "it knows UTF-8, UTF-16 and Windows-1252"),
        ("new TextDecoder('utf-8', {fatal: true}).decode(new Uint8Array([255]))", "are not utf-8"),
        ("new URL('nothing')", "'nothing' is not a valid URL"),
        ("crypto.getRandomValues(new Uint8Array(70000))", "65,536 bytes at most"),
    ],
)
def test_unsupported_web_apis_say_what_to_use(run: Run, body: str, words: str) -> None:
    failure = run(body).failure
    assert failure is not None
    assert words in failure.message


RANDOM = """const a = crypto.getRandomValues(new Uint32Array(100));
return [crypto.randomUUID(), crypto.randomUUID(), [...a], Math.random()]"""
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_random_bytes_repeat_with_their_seed_and_with_no_other(run: Run) -> None:
    seed = (1 << 255) + 7
    first, again = run(RANDOM, entropy=Entropy(seed)), run(RANDOM, entropy=Entropy(seed))
    other = run(RANDOM, entropy=Entropy(7))
    assert first.random
    assert first.output == again.output
    assert first.output[:3] != other.output[:3]
    # Math.random has the lower 64 bits: what was recorded earlier repeats.
    assert first.output[3] == other.output[3]
    assert all(UUID.fullmatch(each) for each in first.output[:2])
    assert first.output[0] != first.output[1]
    assert len(set(first.output[2])) == 100


def test_an_expression_has_no_random_bytes(pool: Pool) -> None:
    failure = pool.evaluate({"a": "crypto.randomUUID()"}, {})["a"].failure
    assert failure is not None
    assert "crypto is not defined" in failure.message
