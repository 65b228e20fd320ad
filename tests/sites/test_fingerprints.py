"""Which file names are recognized as containing a content hash: those of bundlers, not those of people."""

import pytest

from appliance.sites.webapps.fingerprints import is_fingerprinted, may_be_fingerprinted

BUNDLED = {
    "Vite": ["index-BxY3k9_Q.js", "index-D1wrgTda.js", "vendor-C4qT2_xa.css", "logo-BxY3k9_Q.png", "index-BxY3k9_Q.js.map"],
    "webpack": ["main.4f2a9c1b.js", "787.4f2a9c1b.chunk.js", "main.4f2a9c1b0d3e5f6a7b8c.css",
                "logo.6ce24c58023cc2f8fd88fe9d219db5c6.svg", "app-3f2a1b9c.js.map", "app.1234abcd.js"],
    "esbuild": ["app-5QXJ7Z2K.js", "chunk-2XK4B7QA.js", "font-5QXJ7Z2K.woff2"],
    "Angular": ["main-ABCD2345.js", "styles-5INURTSO.css", "polyfills-B6TNHZQ6.js"],
    "Next": ["chunks/main-0f5e9c8d7a6b5c4d.js", "css/5d5e1b2c3f4a5b6c.css", "chunks/117-ed3d9fb0e1c3b0ba.js",
             "media/a34f9d1faa5f3315-s.p.woff2"],
    "Nuxt and SvelteKit": ["_nuxt/BxY3k9_Q.js", "_app/immutable/entry/start.CkZ0yEpV.js"],
    "Astro": ["_astro/photo.BxY3k9_Q_Z1abc2.webp"],
    "Bun": ["index-3hx5jq8t.js"],
    "Django": ["style.55e7cbb9ba48.css"],
    "Hugo": ["main.min.9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.css"],
    "Trunk": ["shop-4f2a9c1b0d3e5f6a_bg.wasm"],
}  # fmt: skip
LIKE_WORDS = [
    "index-DiwrgTda.js", "chunk-ABCDEFGH.js", "index-DiwrgTd4.css", "index-B-x3k9_Q.js", "main.20481934.js", "font-DiwrgTda.woff2",
]  # fmt: skip
WRITTEN = [
    "index.html", "a.b", "customer-contracts.pdf", "salaries-20251122.csv", "config.production.json", "preise-januar2026.pdf",
    "speisekarte-sommer24.pdf", "speisekarte-cafe2024.pdf", "speisekarte-SOMMER24.pdf", "main-version2.css", "logo-version2.png",
    "bild-IMG_2041.jpg", "DSC00012.jpg", "photo-20260101.jpg", "bild-1920x1080.jpg", "plakat-a4quer300dpi.pdf", "app-v2_10_3.js",
    "bericht-Q3Report.pdf", "logo-Plan2Neu.png", "export-20251122T101112Z.csv", "export-2025-11-22T101112.csv", "h264high.mp4",
    "rechnung-4111111111111111.pdf", "rechnung-1234567a.pdf", "stand-20251122a.json", "release-2025a11b.zip", "deck-BxY3k9_Q.pdf",
    "jquery-3.7.1.min.js", "my-component.js", "my-own-longer-component-name.js", "app-settings.css", "liste-januar2026.js",
]  # fmt: skip


@pytest.mark.parametrize("name", [name for names in BUNDLED.values() for name in names])
def test_bundler_names_contain_a_hash(name: str) -> None:
    assert is_fingerprinted(f"assets/{name}")
    assert is_fingerprinted(name)
    assert may_be_fingerprinted(f"/assets/{name}")


@pytest.mark.parametrize("name", LIKE_WORDS)
def test_a_hash_like_a_word_is_found_in_older_versions_but_not_cached_forever(name: str) -> None:
    assert may_be_fingerprinted(f"/assets/{name}")
    assert not is_fingerprinted(f"assets/{name}")


@pytest.mark.parametrize("name", WRITTEN)
def test_names_given_by_people_contain_no_hash(name: str) -> None:
    assert not is_fingerprinted(f"assets/{name}")
    assert not is_fingerprinted(name)


@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in ("main-version2.css", "app-v2_10_3.js")])
def test_names_given_by_people_are_not_found_in_older_versions(name: str) -> None:
    assert not may_be_fingerprinted(f"/assets/{name}")


def test_a_document_with_a_hash_like_a_word_is_not_found_in_older_versions() -> None:
    assert not may_be_fingerprinted("/assets/contract-DiwrgTda.pdf")
    assert not may_be_fingerprinted("/assets/logo-DiwrgTda.png")
