"""Draws one column of a section as horizontal bars: an SVG without script, readable on light and dark pages."""

from html import escape

from .figures import Kind, Row, Section, to_text

COLORS: dict[Kind, str] = {"measured": "#2563eb", "floor": "#94a3b8", "peer": "#d97706"}
NAMES_WIDTH, BARS_WIDTH, VALUE_WIDTH, ROW_HEIGHT, TOP = 330, 360, 90, 22, 34
STYLE = "text{font:12px system-ui,sans-serif;fill:#334155}@media(prefers-color-scheme:dark){text{fill:#cbd5e1}}"


def draw_bars(section: Section) -> str:
    """The bars of the column `section.plot`, longest value over the whole width; rows without that column are left out."""
    rows = [row for row in section.rows if section.plot in row.figures]
    largest = max((row.figures[section.plot] for row in rows), default=0) or 1
    width, height = NAMES_WIDTH + BARS_WIDTH + VALUE_WIDTH, TOP + ROW_HEIGHT * len(rows) + 6
    bars = [_bar(section, row, TOP + index * ROW_HEIGHT, largest) for index, row in enumerate(rows)]
    title = escape(f"{section.title}: {section.plot}")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        f'<text x="8" y="18" font-weight="bold">{title}</text>',
        *bars,
        "</svg>\n",
    ])  # fmt: skip


def _bar(section: Section, row: Row, top: int, largest: float) -> str:
    value = row.figures[section.plot]
    length = max(1.0, value / largest * BARS_WIDTH)
    name = f'<text x="{NAMES_WIDTH - 8}" y="{top + 14}" text-anchor="end">{escape(section.label_of(row))}</text>'
    bar = f'<rect x="{NAMES_WIDTH}" y="{top + 3}" width="{length:.1f}" height="{ROW_HEIGHT - 6}" rx="2" fill="{COLORS[row.kind]}"/>'
    return f'{name}{bar}<text x="{NAMES_WIDTH + length + 6:.1f}" y="{top + 14}">{to_text(value)}</text>'
