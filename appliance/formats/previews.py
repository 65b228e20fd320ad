"""Renders previews of pictures and PDF pages.  The output is always re-encoded, so that no input bytes reach a viewer."""

import io
import struct
import zlib
from typing import Any

from . import pdf_pages
from .errors import ContentInvalid, ContentTooLarge, FormatFailed
from .request import Request

MAX_PIXELS = 60_000_000
MAX_HEIGHT_RATIO = 4  # A multiple of the width; a taller picture is scaled down further.
QUALITY = 80
ORIENTATION = 0x0112  # The EXIF tag for the orientation of the camera.
_DECODER_ERRORS = (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, ArithmeticError, struct.error, zlib.error)


class PageMissing(FormatFailed):
    """The content is valid but has no such page."""

    def __init__(self, number: int) -> None:
        super().__init__("page_missing", "validation", f"the content has no page {number}")


def load() -> None:
    """Load every decoder and encode once, because the worker cannot open files later."""
    pdf_pages.load()
    import PIL.Image

    PIL.Image.init()
    PIL.Image.MAX_IMAGE_PIXELS = None  # `_frame` checks the size before it decodes.
    PIL.Image.new("RGB", (2, 2)).save(io.BytesIO(), "WEBP")


def preview(request: Request) -> dict[str, Any]:
    """Write page `page` as WebP, at most `width` pixels wide; `kind` is `PDF` or the name of the only decoder to use."""
    width, number = request.options["width"], request.options["page"]
    kind = request.options["kind"]
    picture = _render_pdf_page(request, number, width) if kind == "PDF" else _render_picture(request, kind, number, width)
    picture.save(request.output, "WEBP", quality=QUALITY)
    return {"width": picture.width, "height": picture.height}


def _render_pdf_page(request: Request, number: int, width: int) -> Any:
    import pypdfium2

    document = pdf_pages.open_document(request)
    if number > len(document):
        raise PageMissing(number)
    try:
        document.init_forms()  # Draws the values of form fields; scripts are not run.
        page = document[number - 1]
        wide, high = page.get_size()
        if wide <= 0 or high <= 0:
            raise ContentInvalid(f"page {number} of the PDF has no size")
        picture = page.render(scale=min(width / wide, width * MAX_HEIGHT_RATIO / high)).to_pil()
    except (pypdfium2.PdfiumError, ValueError, OverflowError) as error:
        raise ContentInvalid(f"page {number} of the PDF is damaged ({str(error)[:80]})") from error
    return picture.convert("RGB")


def _render_picture(request: Request, kind: str, number: int, width: int) -> Any:
    from PIL import Image

    try:
        picture = Image.open(io.BytesIO(request.content.read()), formats=[kind])
        if number > 1:
            _seek_page(picture, number)
        pixels = picture.width * picture.height
        if pixels > MAX_PIXELS:
            raise ContentTooLarge(
                f"the picture has {pixels / 1e6:.0f} million pixels; the maximum is {MAX_PIXELS // 1_000_000} million"
            )
        picture.draft("RGB", (2 * width, 2 * width * MAX_HEIGHT_RATIO))  # A JPEG is decoded at reduced size, which is faster.
        picture.load()
        orientation = picture.getexif().get(ORIENTATION, 1)
        return _rotate_upright(_scale_down(_to_rgb(picture), width, is_rotated=orientation in (5, 6, 7, 8)), orientation)
    except _DECODER_ERRORS as error:
        raise ContentInvalid(f"the content is not a readable picture ({str(error)[:100]})") from error


def _seek_page(picture: Any, number: int) -> None:
    try:
        picture.seek(number - 1)
    except EOFError as error:
        raise PageMissing(number) from error


def _to_rgb(picture: Any) -> Any:
    """The picture as RGB or RGBA for resampling; 16-bit grey is scaled to 8 bits first, or it would turn out too light."""
    if picture.mode.startswith("I;16"):
        picture = picture.point(lambda value: value / 256).convert("L")
    mode = "RGBA" if picture.has_transparency_data else "RGB"
    return picture if picture.mode == mode else picture.convert(mode)


def _scale_down(picture: Any, width: int, *, is_rotated: bool) -> Any:
    """The picture scaled down to the width, never enlarged, with a white background behind transparent parts."""
    from PIL import Image

    box = (width * MAX_HEIGHT_RATIO, width) if is_rotated else (width, width * MAX_HEIGHT_RATIO)
    picture.thumbnail(box, reducing_gap=3.0)
    if picture.mode == "RGB":
        return picture.copy()  # Saving an opened image resolves file paths, which the worker may no longer do.
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")


def _rotate_upright(picture: Any, orientation: int) -> Any:
    from PIL.Image import Transpose

    transpositions = {
        2: Transpose.FLIP_LEFT_RIGHT, 3: Transpose.ROTATE_180, 4: Transpose.FLIP_TOP_BOTTOM, 5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270, 7: Transpose.TRANSVERSE, 8: Transpose.ROTATE_90,
    }  # fmt: skip
    return picture.transpose(transpositions[orientation]) if orientation in transpositions else picture
