"""OCR with the real engine: a scanned invoice, rotated and noisy, as a picture and inside a PDF."""

import io
import random
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import onnxruntime
import pytest
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from appliance.formats import Bounds, FormatFailed, recognition

from .conftest import MEGABYTE, Perform

FailureOf = Callable[..., FormatFailed]
BOUNDS = Bounds(180, 1024, 32 * MEGABYTE)
LINES = [
    ("Northwind Traders", 60), ("INVOICE  No. 2026-0815", 48), ("Customer: Vins et alcools Chevalier", 34),
    ("Queso Cabrales   12 x 14.00   168.00", 34),
    ("Mozzarella di Giovanni   5 x 34.80   174.00", 34), ("Total due: EUR 342.00", 44),
]  # fmt: skip


def scan(angle: float = 2.5) -> Image.Image:
    """A page as a scanner gives it: skewed, a little blurred, with specks and a grey ground."""
    page = Image.new("L", (1240, 900), 244)
    draw = ImageDraw.Draw(page)
    for number, (text, size) in enumerate(LINES):
        draw.text((110, 90 + number * 115), text, font=ImageFont.load_default(size), fill=30)
    page = page.rotate(angle, resample=Image.Resampling.BICUBIC, expand=True, fillcolor=244).filter(ImageFilter.GaussianBlur(0.8))
    chance = random.Random(4711)  # noqa: S311
    pixels = page.load()
    assert pixels is not None
    for _ in range(page.width * page.height // 120):
        pixels[chance.randrange(page.width), chance.randrange(page.height)] = chance.randrange(256)
    return page


def saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def check_invoice(text: str) -> None:
    assert re.search(r"INVOICE\s*No\.\s*2026-0815", text), text
    assert re.search(r"Total due:\s*EUR\s*342\.00", text), text


def test_a_scanned_invoice_is_read_with_its_number_and_total(perform: Perform) -> None:
    result = perform("ocr", saved(scan(), "PNG"), bounds=BOUNDS, languages=["en"])
    page = result.records[0]
    check_invoice(page["text"])
    assert result.facts["count"] == 1
    assert page["confidence"] > 0.9
    total = next(line for line in page["lines"] if "342.00" in line["text"] and "Total" in line["text"])
    left, top = total["box"][0]
    assert 0 < left < page["width"] / 3
    assert page["height"] / 2 < top < page["height"]


def test_a_scanned_pdf_is_read_page_by_page(perform: Perform) -> None:
    content = io.BytesIO()
    blank = Image.new("L", (600, 400), 255)
    blank.save(content, "PDF", save_all=True, append_images=[scan(-3.0)], resolution=150)
    result = perform("ocr", content.getvalue(), bounds=BOUNDS, dpi=150)
    assert [(page["page"], page["lines"] == []) for page in result.records] == [(1, True), (2, False)]
    check_invoice(result.records[1]["text"])


@pytest.mark.parametrize("content", [saved(scan(), "PNG")[:5000], b"%PDF-1.7 broken"])
def test_invalid_pictures_are_refused(failure_of: FailureOf, content: bytes) -> None:
    assert failure_of("ocr", content, bounds=BOUNDS).code == "content_invalid"


@pytest.mark.parametrize(("content", "expected"), [(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"), (b"nothing", "send PNG")])
def test_an_unknown_picture_format_is_named(failure_of: FailureOf, content: bytes, expected: str) -> None:
    message = failure_of("ocr", content, bounds=BOUNDS).message
    assert expected in message
    assert " at 0x" not in message


def test_a_decompression_bomb_is_refused_by_its_size(failure_of: FailureOf) -> None:
    content = saved(Image.new("1", (20_000, 20_000)), "PNG")
    assert len(content) < MEGABYTE
    assert failure_of("ocr", content, bounds=BOUNDS).code == "content_too_large"


def test_without_the_engine_the_operator_learns_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(FormatFailed) as caught:
        recognition.load()
    assert (caught.value.code, caught.value.failure_class) == ("ocr_not_installed", "system")
    assert "gos-appliance[ocr]" in caught.value.message


def test_the_model_knows_every_letter_of_the_offered_languages() -> None:
    letters = {
        "de": "äöüÄÖÜß",
        "fr": "éèàçêœ",
        "es": "ñáíóú¿",
        "pl": "łżźęąśćń",
        "cs": "řěčšžů",
        "hu": "őű",
        "tr": "şğı",
        "ro": "șțăî",
        "ja": "あア",
    }
    model = Path(str(find_spec("rapidocr").submodule_search_locations[0])) / "models" / "PP-OCRv6_rec_small.onnx"  # type: ignore[union-attr,index]
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    characters = set(session.get_modelmeta().custom_metadata_map["character"].split("\n"))
    assert {name: "".join(each for each in text if each not in characters) for name, text in letters.items()} == dict.fromkeys(
        letters, ""
    )


def test_a_language_that_the_engine_lacks_is_refused(failure_of: FailureOf) -> None:
    assert "does not support ru, use any of en" in failure_of("ocr", b"", bounds=BOUNDS, languages=["en", "ru"]).message.replace(
        ";", ","
    )
