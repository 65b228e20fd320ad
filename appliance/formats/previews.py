"""A picture of a picture or of a page, no wider than is asked for; what comes out has been painted anew, whatever came in."""

import io
import struct
import zlib
from typing import Any

from . import pdf_pages
from .failing import ContentInvalid, ContentTooLarge, FormatFailed
from .request import Request

MOST_PIXELS = 60_000_000
MOST_HEIGHT = 4  # times the width; what is longer becomes narrower
QUALITY = 80
ORIENTATION = 0x0112  # EXIF: how the camera was held
_BROKEN = (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, ArithmeticError, struct.error, zlib.error)


class PageMissing(FormatFailed):
    """The content is fine and has no such page."""

    def __init__(self, number: int) -> None:
        super().__init__("page_missing", "validation", f"the content has no page {number}")


def load() -> None:
    """Loads every decoder and paints once: later no file can be opened."""
    pdf_pages.load()
    import PIL.Image

    PIL.Image.init()
    PIL.Image.MAX_IMAGE_PIXELS = None  # we look at the size before anything is decoded
    PIL.Image.new("RGB", (2, 2)).save(io.BytesIO(), "WEBP")


def preview(request: Request) -> dict[str, Any]:
    """WebP of page `page` at most `width` wide; `kind` is `PDF` or the name of the one decoder that may look at the content."""
    width, number = request.options["width"], request.options["page"]
    kind = request.options["kind"]
    picture = _pdf_page(request, number, width) if kind == "PDF" else _frame(request, kind, number, width)
    picture.save(request.output, "WEBP", quality=QUALITY)
    return {"width": picture.width, "height": picture.height}


def _pdf_page(request: Request, number: int, width: int) -> Any:
    import pypdfium2

    document = pdf_pages.open_document(request)
    if number > len(document):
        raise PageMissing(number)
    try:
        document.init_forms()  # what is filled into fields is drawn, nothing in it is run
        page = document[number - 1]
        wide, high = page.get_size()
        if wide <= 0 or high <= 0:
            raise ContentInvalid(f"page {number} of the PDF has no size")
        picture = page.render(scale=min(width / wide, width * MOST_HEIGHT / high)).to_pil()
    except (pypdfium2.PdfiumError, ValueError, OverflowError) as error:
        raise ContentInvalid(f"page {number} of the PDF is damaged ({str(error)[:80]})") from error
    return picture.convert("RGB")


def _frame(request: Request, kind: str, number: int, width: int) -> Any:
    from PIL import Image

    try:
        picture = Image.open(io.BytesIO(request.content.read()), formats=[kind])
        if number > 1:
            _turn_to(picture, number)
        pixels = picture.width * picture.height
        if pixels > MOST_PIXELS:
            raise ContentTooLarge(
                f"the picture has {pixels / 1e6:.0f} million pixels; at most {MOST_PIXELS // 1_000_000} million are painted"
            )
        picture.draft("RGB", (2 * width, 2 * width * MOST_HEIGHT))  # of a JPEG only as much as is needed
        picture.load()
        held = picture.getexif().get(ORIENTATION, 1)
        return _upright(_fitted(_plain(picture), width, is_lying=held in (5, 6, 7, 8)), held)
    except _BROKEN as error:
        raise ContentInvalid(f"the content is no picture that can be read ({str(error)[:100]})") from error


def _turn_to(picture: Any, number: int) -> None:
    try:
        picture.seek(number - 1)
    except EOFError as error:
        raise PageMissing(number) from error


def _plain(picture: Any) -> Any:
    """In colours that can be mixed: with 16 bits a grey is too light for eight, and a palette has nothing between."""
    if picture.mode.startswith("I;16"):
        picture = picture.point(lambda value: value / 256).convert("L")
    mode = "RGBA" if picture.has_transparency_data else "RGB"
    return picture if picture.mode == mode else picture.convert(mode)


def _fitted(picture: Any, width: int, *, is_lying: bool) -> Any:
    """Not enlarged; on white where it can be seen through."""
    from PIL import Image

    box = (width * MOST_HEIGHT, width) if is_lying else (width, width * MOST_HEIGHT)
    picture.thumbnail(box, reducing_gap=3.0)
    if picture.mode == "RGB":
        return picture.copy()  # of what was opened, saving compares paths, which can no longer be asked for
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")


def _upright(picture: Any, held: int) -> Any:
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT, 3: Transpose.ROTATE_180, 4: Transpose.FLIP_TOP_BOTTOM, 5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270, 7: Transpose.TRANSVERSE, 8: Transpose.ROTATE_90,
    }  # fmt: skip
    return picture.transpose(turns[held]) if held in turns else picture
