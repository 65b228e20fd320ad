"""The flow chart of a definition: lays out its steps as boxes and connectors, which the template draws as SVG."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, Self, TypeVar

from appliance.console.pages.operate.timeline import state_of
from appliance.core.texts import gettext as _
from appliance.core.texts import mark, ngettext
from appliance.processes.executions import StepCount

from . import outline
from .outline import StepLine

# All lengths are CSS pixels at natural size, at which the text is as large as on the rest of the page.
WIDTH, HEIGHT, NOTE_HEIGHT = 228, 48, 17
GAP, COLUMN_GAP, ASIDE = 28, 24, 52
FORK_HEIGHT, JOIN_HEIGHT = 52, 22
PADDING, TITLE_HEIGHT, LOOP_MARGIN = 16, 30, 26
PASSING_WIDTH = 120
RADIUS, ARROW = 9.0, 4.5
MARGIN = 8
# A definition with more steps is drawn without nested steps, and only up to this number.
MOST_STEPS = 300
OVER = ("succeeded", "failed", "skipped", "cancelled", "timed_out")
STARTS = {
    "schedule": mark("schedule"), "webhook": mark("webhook"), "integration": mark("new item"), "datapool": mark("changed entity"),
    "process": mark("process"), "document": mark("document"),
}  # fmt: skip
Point = tuple[float, float]
T = TypeVar("T")


class Movable(Protocol):
    """An item of the chart that can be moved."""

    def moved(self, by: Point) -> Self: ...


@dataclass(frozen=True)
class StepState:
    """The progress of a step in an execution: `total` runs, of which `done` have finished."""

    status: str
    total: int = 1
    done: int = 0


@dataclass(frozen=True)
class Box:
    """A step, or another process (`is_process`); `notes` are lines below its text, `state` is None when none is shown."""

    at: Point
    line: StepLine
    notes: tuple[str, ...] = ()
    state: StepState | None = None
    is_aside: bool = False
    is_process: bool = False
    count: str = ""

    @property
    def height(self) -> int:
        return HEIGHT + NOTE_HEIGHT * len(self.notes)

    @property
    def title(self) -> str:
        return _cut(self.line.id, 18 if self.count else 22 if self.state else 25)

    @property
    def text(self) -> str:
        return _cut(self.line.name or self.line.text, 25 if self.state else 30)

    @property
    def short_notes(self) -> list[str]:
        return [_cut(note, 34) for note in self.notes]

    def moved(self, by: Point) -> "Box":
        return replace(self, at=_sum(self.at, by))


@dataclass(frozen=True)
class Wire:
    """A connector along points; `is_aside` marks failure handling, `is_off` a branch that was not taken."""

    points: tuple[Point, ...]
    has_arrow: bool = False
    is_aside: bool = False
    is_off: bool = False

    def moved(self, by: Point) -> "Wire":
        return replace(self, points=tuple(_sum(point, by) for point in self.points))

    @property
    def path(self) -> str:
        """The `d` attribute of the SVG path, with rounded corners and the arrow head."""
        points = [self.points[0], *(point for before, point in pairwise(self.points) if point != before)]
        parts = [f"M{_format_point(points[0])}"]
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            start, end = _towards(corner, before), _towards(corner, after)
            parts.append(f"L{_format_point(start)}Q{_format_point(corner)} {_format_point(end)}")
        parts.append(f"L{_format_point(points[-1])}")
        if self.has_arrow and len(points) > 1:
            (x, y), x0 = points[-1], points[-2][0]
            tips = ((x - ARROW, y - ARROW), (x + ARROW, y - ARROW)) if x == x0 else ((x - ARROW, y - ARROW), (x - ARROW, y + ARROW))
            parts.append(f"M{_format_point(tips[0])}L{_format_point((x, y))}L{_format_point(tips[1])}")
        return "".join(parts)


@dataclass(frozen=True)
class Sign:
    """A text on the chart, centered at its position; `whole` is the full text if it was truncated."""

    at: Point
    text: str
    whole: str = ""
    kind: str = "condition"

    def moved(self, by: Point) -> "Sign":
        return replace(self, at=_sum(self.at, by))


@dataclass(frozen=True)
class Frame:
    """A border around the steps of a loop or of the failure handling."""

    at: Point
    size: Point
    is_aside: bool = False

    def moved(self, by: Point) -> "Frame":
        return replace(self, at=_sum(self.at, by))


@dataclass(frozen=True)
class Picture:
    """The finished chart, items listed from back to front; the flow starts at x = `middle`; `left_out` steps are not drawn."""

    width: int
    height: int
    frames: list[Frame]
    wires: list[Wire]
    signs: list[Sign]
    boxes: list[Box]
    middle: int
    left_out: int = 0


@dataclass(frozen=True)
class _Part:
    """A section of the chart with its own origin; the flow enters and leaves at x = `axis`, unless it `ends` inside."""

    width: float
    height: float
    axis: float
    items: tuple[Movable, ...] = ()
    ends: bool = False
    is_off: bool = False

    def at(self, x: float, y: float) -> tuple[Movable, ...]:
        return tuple(item.moved((x, y)) for item in self.items)


@dataclass(frozen=True)
class _Drawing:
    """Lays out steps as parts; with `states` they show the progress of an execution."""

    states: Mapping[str, StepState] | None
    is_flat: bool = False
    is_aside: bool = False

    def sequence(self, lines: Sequence[StepLine]) -> _Part:
        return self.column([self.step(line) for line in lines])

    def column(self, parts: Sequence[_Part]) -> _Part:
        """Stack parts vertically with aligned axes."""
        if not parts:
            return _Part(PASSING_WIDTH, 0, PASSING_WIDTH / 2)
        axis = max(part.axis for part in parts)
        items: list[Movable] = []
        y = 0.0
        for index, part in enumerate(parts):
            if index:
                if not parts[index - 1].ends:
                    items.append(Wire(((axis, y), (axis, y + GAP)), True, self.is_aside, part.is_off))
                y += GAP
            items += part.at(axis - part.axis, y)
            y += part.height
        width = axis + max(part.width - part.axis for part in parts)
        return _Part(width, y, axis, tuple(items), parts[-1].ends, parts[0].is_off)

    def step(self, line: StepLine) -> _Part:
        part = self.box(line)
        if line.groups and not self.is_flat:
            part = self.loop(line, part) if line.kind == "for_each" else self.fork(line, part)
        return self.with_undo(part, line) if line.undo and not self.is_flat else part

    def box(self, line: StepLine) -> _Part:
        notes = [_("only when %(condition)s", condition=line.when)] if line.when else []
        notes += [_("continues after a failure")] if line.goes_on else []
        if line.retries:
            notes.append(ngettext("retried up to %(num)s time", "retried up to %(num)s times", line.retries))
        state = None
        if self.states is not None:  # Steps of failure handling that did not run have no state.
            state = self.states.get(line.path, None if self.is_aside else StepState("pending", 0))
        count = f"{state.done}/{state.total}" if state and state.total > 1 else ""
        box = Box((0, 0), line, tuple(notes), state, self.is_aside, count=count)
        ends = line.kind == "stop" and not line.when
        is_off = self.states is not None and (state is None or state.status in ("pending", "skipped"))
        return _Part(WIDTH, box.height, WIDTH / 2, (box,), ends, is_off)

    def fork(self, line: StepLine, head: _Part) -> _Part:
        """Lay out the groups of a branch or parallel step side by side."""
        signs = [group.title for group in line.groups]
        columns = [self.sequence(group.steps) for group in line.groups]
        if line.kind == "branch" and outline.otherwise() not in signs:
            signs.append(outline.otherwise())
            columns.append(_Part(PASSING_WIDTH, 0, PASSING_WIDTH / 2, is_off=self.took_one(line)))
        width = max(head.width, sum(column.width for column in columns) + COLUMN_GAP * (len(columns) - 1))
        starts = _starts(columns, width)
        axis = (starts[0] + columns[0].axis + starts[-1] + columns[-1].axis) / 2
        axis = min(max(axis, head.axis), width - (head.width - head.axis))
        top = head.height + FORK_HEIGHT
        bottom = top + max(column.height for column in columns) + JOIN_HEIGHT
        items = list(head.at(axis - head.axis, 0))
        for column, start, sign in zip(columns, starts, signs, strict=True):
            x = start + column.axis
            ways = ((axis, head.height), (axis, head.height + 14), (x, head.height + 14), (x, top))
            items.append(Wire(ways, column.height > 0, self.is_aside, column.is_off))
            if not column.ends:
                back = ((x, top + column.height), (x, bottom - 8), (axis, bottom - 8), (axis, bottom))
                items.append(Wire(back, False, self.is_aside, column.is_off))
            items.append(Sign((x, head.height + 34), _cut(sign, max(10, int(column.width / 6.4))), sign))
            items += column.at(start, top)
        return _Part(width, bottom, axis, tuple(items), all(column.ends for column in columns), head.is_off)

    def took_one(self, line: StepLine) -> bool:
        """Whether an execution took one of the groups of this step, or never reached the step."""
        if self.states is None:
            return False
        return line.path not in self.states or any(inner.path in self.states for group in line.groups for inner in group.steps)

    def loop(self, line: StepLine, head: _Part) -> _Part:
        """Lay out a for_each step: a frame around its steps with a connector back to the start."""
        body = self.sequence([inner for group in line.groups for inner in group.steps])
        axis = LOOP_MARGIN + max(head.axis, body.axis)
        width = axis + max(head.width - head.axis, body.width - body.axis) + PADDING
        top = PADDING + head.height + GAP
        bottom = top + body.height + PADDING + 6
        middle = PADDING + HEIGHT / 2
        items: list[Movable] = [Frame((0, 0), (width, bottom)), *head.at(axis - head.axis, PADDING)]
        items.append(Wire(((axis, PADDING + head.height), (axis, top)), True, self.is_aside, body.is_off))
        items += body.at(axis - body.axis, top)
        if not body.ends:
            back = ((axis, top + body.height), (axis, bottom - 10), (11, bottom - 10), (11, middle), (axis - head.axis, middle))
            items.append(Wire(back, True, self.is_aside, body.is_off))
        return _Part(width, bottom, axis, tuple(items), False, head.is_off)

    def with_undo(self, part: _Part, line: StepLine) -> _Part:
        """Add the undo steps to the right of a step."""
        inner = _Drawing(self.states, is_aside=True).sequence(line.undo)
        head = PADDING if line.kind == "for_each" and line.groups else 0
        x, middle = part.width + ASIDE, head + HEIGHT / 2
        wire = Wire(((part.axis + WIDTH / 2, middle), (x + inner.axis - WIDTH / 2, middle)), True, True)
        items = (*part.items, wire, Sign((x - ASIDE / 2, middle - 7), _("undo"), kind="aside"), *inner.at(x, head))
        return replace(part, width=x + inner.width, height=max(part.height, head + inner.height), items=items)


def _starts(columns: Sequence[_Part], width: float) -> list[float]:
    """The x positions of columns that are centered side by side within `width`."""
    x = (width - sum(column.width for column in columns) - COLUMN_GAP * (len(columns) - 1)) / 2
    starts = []
    for column in columns:
        starts.append(x)
        x += column.width + COLUMN_GAP
    return starts


def build_picture(
    definition: Mapping[str, Any], states: Mapping[str, StepState] | None = None, *, has_ended_well: bool = False
) -> Picture:
    """The flow chart of a definition, which may be an invalid draft.

    With `states` by step path, the chart shows an execution; its end is reached only if it `has_ended_well`.
    """
    lines = outline.build_outline(definition)
    process, after = outline.after_failure(definition)
    count = len(list(outline.every_line([*lines, *after])))
    is_flat = count > MOST_STEPS
    visible_lines = lines[:MOST_STEPS]
    drawing = _Drawing(states, is_flat)
    start, end = _sign_part(_describe_triggers(definition), "start"), _sign_part(_("End"), "end")
    end = replace(end, is_off=states is not None and not has_ended_well)
    main = drawing.column([start, *(drawing.step(line) for line in visible_lines), end])
    items = list(main.items)
    width, height = main.width, main.height
    if process or after:
        aside = _after_failure(states, process, after[:MOST_STEPS], is_flat)
        items += aside.at(main.width + ASIDE, 0)
        width, height = main.width + ASIDE + aside.width, max(height, aside.height)
    items_moved = [item.moved((MARGIN, MARGIN)) for item in items]
    box_count = len([item for item in items_moved if isinstance(item, Box) and not item.is_process])
    return Picture(
        width=round(width + 2 * MARGIN), height=round(height + 2 * MARGIN), frames=_only(items_moved, Frame),
        wires=_only(items_moved, Wire), signs=_only(items_moved, Sign), boxes=_only(items_moved, Box),
        middle=round(main.axis + MARGIN), left_out=count - box_count,
    )  # fmt: skip


def states_of(counts: Iterable[StepCount]) -> dict[str, StepState]:
    """The state of every step that has run, by its path."""
    return {
        each.path: StepState(state_of(each.by_status), each.total, sum(each.by_status.get(status, 0) for status in OVER))
        for each in counts
    }


def _only(placed: Iterable[Movable], kind: type[T]) -> list[T]:
    return [item for item in placed if isinstance(item, kind)]


def _sign_part(text: str, kind: str) -> _Part:
    return _Part(WIDTH, 28, WIDTH / 2, (Sign((WIDTH / 2, 14), text, kind=kind),))


def _describe_triggers(definition: Mapping[str, Any]) -> str:
    raw = definition.get("triggers")
    triggers = [each for each in raw if isinstance(each, Mapping)] if isinstance(raw, list) else []
    kinds = [_(text) for kind, text in STARTS.items() if any(kind in each for each in triggers)]
    if not kinds:
        return _("Starts on call")
    first = ", ".join(kinds[:2])
    return _("Starts on %(first)s … or call", first=first) if len(kinds) > 2 else _("Starts on %(first)s or call", first=first)


def _after_failure(states: Mapping[str, StepState] | None, process: str, lines: Sequence[StepLine], is_flat: bool) -> _Part:
    """Lay out the failure handling in its own frame."""
    drawing = _Drawing(states, is_flat, is_aside=True)
    parts = [drawing.step(line) for line in lines]
    if process:
        line = StepLine(process, "process", _("Process"), _("Starts on failure"), process=process)
        box = Box((0, 0), line, is_aside=True, is_process=True)
        parts.append(_Part(WIDTH, HEIGHT, WIDTH / 2, (box,)))
    inner = drawing.column(parts)
    width, height = inner.width + 2 * PADDING, inner.height + TITLE_HEIGHT + PADDING
    frame, sign = Frame((0, 0), (width, height), True), Sign((width / 2, 17), _("On failure"), kind="aside")
    return _Part(width, height, inner.axis + PADDING, (frame, sign, *inner.at(PADDING, TITLE_HEIGHT)))


def _sum(one: Point, other: Point) -> Point:
    return one[0] + other[0], one[1] + other[1]


def _towards(corner: Point, other: Point) -> Point:
    """The point near a corner, towards its neighbor, where the rounding starts."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = abs(dx) + abs(dy)
    part = min(RADIUS, length / 2) / length if length else 0
    return corner[0] + dx * part, corner[1] + dy * part


def _format_point(point: Point) -> str:
    return f"{point[0]:g} {point[1]:g}"


def _cut(text: str, most: int) -> str:
    """Truncate a text to a display width; East Asian characters count twice."""
    room = 0
    for index, character in enumerate(text):
        room += 2 if ord(character) > 0x1100 else 1
        if room > most:
            return f"{text[: max(index - 1, 1)]}…"
    return text
