"""Previews of pictures and pages: of the requested width, upright, on white; hostile content is refused."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from appliance.formats import Bounds, FormatFailed

from .conftest import Perform

FailureOf = Callable[..., FormatFailed]
RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def written(picture: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def halves(mode: str = "RGB") -> Image.Image:
    """Left red, right blue."""
    picture = Image.new("RGB", (400, 200), RED)
    picture.paste(BLUE, (200, 0, 400, 200))
    return picture.convert(mode)


def painted(perform: Perform, content: bytes, kind: str, page: int = 1, width: int = 160) -> Image.Image:
    result = perform("preview", content, kind=kind, page=page, width=width)
    picture = Image.open(io.BytesIO(result.content))
    assert picture.format == "WEBP"
    assert result.facts == {"width": picture.width, "height": picture.height}
    return picture.convert("RGB")


def is_near(picture: Image.Image, place: tuple[int, int], colour: tuple[int, int, int]) -> bool:
    return all(abs(actual - expected) < 60 for actual, expected in zip(picture.getpixel(place), colour, strict=True))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"])
def test_every_picture_format_gets_a_preview(perform: Perform, kind: str) -> None:
    picture = painted(perform, written(halves("P" if kind == "GIF" else "RGB"), kind), kind)
    assert picture.size == (160, 80)
    assert is_near(picture, (20, 40), RED)
    assert is_near(picture, (140, 40), BLUE)


def test_previews_are_upright_on_white_and_never_enlarged(perform: Perform) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = painted(perform, written(halves(), "JPEG", exif=exif), "JPEG")
    assert turned.size == (160, 320)
    assert is_near(turned, (80, 40), RED)
    seen_through = painted(perform, written(Image.new("RGBA", (50, 40), (0, 0, 0, 0)), "PNG"), "PNG", width=1280)
    assert seen_through.size == (50, 40)
    assert is_near(seen_through, (25, 20), WHITE)
    assert painted(perform, written(Image.new("L", (100, 10_000)), "PNG"), "PNG").size == (6, 640)


def test_pages_of_tiff_and_pdf(perform: Perform, failure_of: FailureOf) -> None:
    pages = [Image.new("RGB", (300, 400), each) for each in (RED, BLUE)]
    for kind in ("TIFF", "PDF"):
        content = written(pages[0], kind, save_all=True, append_images=pages[1:])
        second = painted(perform, content, kind, page=2, width=320)
        assert second.width == (320 if kind == "PDF" else 300)
        assert is_near(second, (150, 200), BLUE)
        assert failure_of("preview", content, kind=kind, page=3, width=320).code == "page_missing"


def locked_pdf() -> bytes:
    """A PDF that names a handler for passwords (ISO 32000-1, 7.6)."""
    key = "<" + "ab" * 32 + ">"
    return (
        "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\n"
        f"4 0 obj<</Filter/Standard/V 1/R 2/P -4/O{key}/U{key}>>endobj\n"
        "trailer<</Root 1 0 R/Encrypt 4 0 R/ID[<00><00>]>>\n%%EOF"
    ).encode()


def test_bombs_and_broken_content_are_refused(failure_of: FailureOf) -> None:
    bomb = written(Image.new("1", (8_000, 8_000)), "PNG")
    for kind, content, code, expected in (
        ("PNG", bomb, "content_too_large", "million pixels"),
        ("PNG", written(halves(), "JPEG"), "content_invalid", "not a readable picture"),
        ("JPEG", b"\xff\xd8\xff<svg onload=alert(1)>", "content_invalid", "not a readable picture"),
        ("PDF", b"%PDF-1.7 nothing", "content_invalid", "not a readable PDF"),
        ("PDF", locked_pdf(), "content_encrypted", "without a password"),
    ):
        failed = failure_of("preview", content, kind=kind, page=1, width=160)
        assert (failed.code, expected in failed.message) == (code, True), failed.message


def test_insufficient_memory_is_an_error(perform: Perform) -> None:
    large = written(Image.new("1", (7_000, 7_000)), "PNG")
    with pytest.raises(FormatFailed) as caught:
        perform("preview", large, kind="PNG", page=1, width=160, bounds=Bounds(60, 32, 1 << 20))
    assert caught.value.code == "content_memory"
