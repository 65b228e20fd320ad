"""OCR: recognizes lines of text with boxes and confidence in pictures and PDF pages.

The engine is RapidOCR with the models in its package; install it with the extra `ocr`.
"""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from . import pdf_pages
from .errors import ContentInvalid, ContentTooLarge, FormatFailed
from .request import Records, Request

# The languages whose characters the recognition model covers.
LANGUAGES = (
    "en", "de", "fr", "es", "it", "pt", "nl", "da", "sv", "no", "fi", "is", "pl", "cs", "sk", "sl", "hr", "hu", "ro", "tr",
    "et", "lt", "lv", "ga", "sq", "id", "ms", "zh", "ja",
)  # fmt: skip
MAX_PIXELS = 60_000_000
MAX_PAGES = 200
DPI = 200
_NOT_INSTALLED = "text recognition is not installed; an operator can install it with: pip install 'gos-appliance[ocr]'"
_libraries: dict[str, Any] = {}


def load_check() -> None:
    """Load the libraries that inspect the input, without the engine."""
    pdf_pages.load()
    if find_spec("rapidocr") is None:
        raise FormatFailed("ocr_not_installed", "system", _NOT_INSTALLED)
    import PIL.Image
    import PIL.ImageOps
    import PIL.ImageSequence

    PIL.Image.init()
    PIL.Image.MAX_IMAGE_PIXELS = None  # The size is checked before anything is decoded.


def check(request: Request) -> dict[str, Any]:
    """Reject input that can be rejected without decoding any pixels."""
    _check_languages(request)
    if _is_pdf(request):
        _open_pdf(request)
    else:
        with _map_decoder_errors(request):
            _open_picture(request)
    return {}


def load() -> None:
    """Load the models and run each once, because the worker cannot open files later.  Does nothing in a forked worker."""
    if _libraries:
        return
    load_check()
    try:
        import cv2
        import numpy
        from rapidocr import RapidOCR
    except ImportError as error:
        raise FormatFailed("ocr_not_installed", "system", _NOT_INSTALLED) from error
    logging.disable(logging.CRITICAL)
    cv2.setNumThreads(1)
    engine = "EngineConfig.onnxruntime"
    # Threads of the engine would not survive a fork.
    threads = {f"{engine}.intra_op_num_threads": 1, f"{engine}.inter_op_num_threads": 1}
    reader = RapidOCR(params={"Global.log_level": "critical", **threads})
    sample = numpy.full((200, 600, 3), 255, numpy.uint8)
    cv2.putText(sample, "READY 1", (20, 120), cv2.FONT_HERSHEY_SIMPLEX, 2, (0, 0, 0), 3)
    reader(sample)
    _libraries.update(reader=reader, numpy=numpy)


def recognise(request: Request) -> dict[str, Any]:
    """Write a record per page: `{page, width, height, text, confidence, lines: [{text, confidence, box}]}`.

    A box is the four corners in pixels of the page, clockwise from the top left.
    """
    _check_languages(request)
    min_confidence = request.option("min_confidence", 0.5)
    records = Records(request.output)
    for number, picture in _iterate_pdf_pages(request) if _is_pdf(request) else _iterate_pictures(request):
        records.add(_recognize_page(number, picture, min_confidence))
    return {"count": records.count}


def _check_languages(request: Request) -> None:
    unknown = [name for name in request.option("languages", ["en"]) if name not in LANGUAGES]
    if unknown:
        raise ContentInvalid(
            f"text recognition does not support {', '.join(map(str, unknown))[:60]}; use any of {', '.join(LANGUAGES)}"
        )


def _is_pdf(request: Request) -> bool:
    head = request.content.read(1024)
    request.content.seek(0)
    return b"%PDF-" in head


def _open_pdf(request: Request) -> tuple[Any, list[int]]:
    document = pdf_pages.open_document(request)
    numbers = list(pdf_pages.parse_page_selection(request.options.get("pages"), len(document)))
    _check_page_count(len(numbers))
    return document, numbers


def _iterate_pdf_pages(request: Request) -> Iterator[tuple[int, Any]]:
    import pypdfium2

    document, numbers = _open_pdf(request)
    scale = request.option("dpi", DPI) / 72
    for number in numbers:
        try:
            page = document[number - 1]
            _check_pixels(page.get_width() * scale * page.get_height() * scale, f"page {number}")
            yield number, page.render(scale=scale, rev_byteorder=False).to_numpy()
        except pypdfium2.PdfiumError as error:
            raise ContentInvalid(f"page {number} of the PDF is damaged ({str(error)[:80]})") from error


_HEIF = (b"ftypheic", b"ftypheix", b"ftyphevc", b"ftypmif1", b"ftypmsf1")


def _open_picture(request: Request) -> tuple[Any, set[int]]:
    from PIL import Image

    picture = Image.open(io.BytesIO(request.content.read()))
    numbers = set(pdf_pages.parse_page_selection(request.options.get("pages"), getattr(picture, "n_frames", 1)))
    _check_page_count(len(numbers))
    if 1 in numbers:
        _check_pixels(picture.width * picture.height, "page 1")
    return picture, numbers


def _iterate_pictures(request: Request) -> Iterator[tuple[int, Any]]:
    """The pages of a picture (several for a TIFF), rotated as their EXIF orientation says."""
    from PIL import ImageOps, ImageSequence

    with _map_decoder_errors(request):
        picture, numbers = _open_picture(request)
        for number, frame in enumerate(ImageSequence.Iterator(picture), 1):
            if number in numbers:
                _check_pixels(frame.width * frame.height, f"page {number}")
                upright = ImageOps.exif_transpose(frame)
                yield number, _libraries["numpy"].asarray(_add_white_background(upright))[:, :, ::-1]


@contextmanager
def _map_decoder_errors(request: Request) -> Iterator[None]:
    """Turn the errors of picture decoders into ContentInvalid."""
    from PIL import UnidentifiedImageError

    try:
        yield
    except UnidentifiedImageError as error:
        request.content.seek(0)
        if request.content.read(12)[4:] in _HEIF:
            raise ContentInvalid("HEIC pictures are not supported; save the picture as JPEG or PNG") from error
        raise ContentInvalid("the content is not a readable picture or PDF; send PNG, JPEG, TIFF, WebP or PDF") from error
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise ContentInvalid(f"the content is not a readable picture or PDF ({str(error)[:100]})") from error


def _add_white_background(picture: Any) -> Any:
    from PIL import Image

    if "A" not in picture.getbands() and "transparency" not in picture.info:
        return picture.convert("RGB")
    full = picture.convert("RGBA")
    white = Image.new("RGBA", full.size, "white")
    return Image.alpha_composite(white, full).convert("RGB")


def _check_pixels(pixels: float, what: str) -> None:
    if pixels > MAX_PIXELS:
        raise ContentTooLarge(f"{what} has {pixels / 1e6:.0f} million pixels; the maximum is {MAX_PIXELS // 1_000_000} million")


def _check_page_count(pages: int) -> None:
    if pages > MAX_PAGES:
        raise ContentTooLarge(f"{pages} pages are too many; select at most {MAX_PAGES} with `pages`")


def _recognize_page(number: int, picture: Any, min_confidence: float) -> dict[str, Any]:
    result = _libraries["reader"](picture)
    lines = []
    if result.boxes is not None:
        for box, text, score in zip(result.boxes, result.txts, result.scores, strict=True):
            if score >= min_confidence and text.strip():
                corners = [[round(float(x), 1), round(float(y), 1)] for x, y in box]
                lines.append({"text": text, "confidence": round(float(score), 4), "box": corners})
    confidence = sum(line["confidence"] * len(line["text"]) for line in lines) / max(1, sum(len(line["text"]) for line in lines))
    height, width = picture.shape[:2]
    return {
        "page": number, "width": int(width), "height": int(height), "text": "\n".join(line["text"] for line in lines),
        "confidence": round(confidence, 4), "lines": lines,
    }  # fmt: skip
