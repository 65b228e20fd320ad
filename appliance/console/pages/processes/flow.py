"""The picture of a definition: its steps as boxes with lines between them, laid out here and drawn by the template."""

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

# All lengths are CSS pixels of the picture at its natural size, on which text is as large as on the rest of a page.
WIDTH, HEIGHT, NOTE_HEIGHT = 228, 48, 17
GAP, COLUMN_GAP, ASIDE = 28, 24, 52
FORK_HEIGHT, JOIN_HEIGHT = 52, 22
PADDING, TITLE_HEIGHT, LOOP_MARGIN = 16, 30, 26
PASSING_WIDTH = 120
RADIUS, ARROW = 9.0, 4.5
MARGIN = 8
# A larger definition is drawn without what stands inside its steps, and at most so many of them.
MOST_STEPS = 300
OVER = ("succeeded", "failed", "skipped", "cancelled", "timed_out")
STARTS = {
    "schedule": mark("schedule"), "webhook": mark("webhook"), "integration": mark("new item"), "datapool": mark("changed entity"),
    "process": mark("process"), "document": mark("document"),
}  # fmt: skip
Point = tuple[float, float]
T = TypeVar("T")


class Placed(Protocol):
    """Something with a place that can stand elsewhere."""

    def moved(self, by: Point) -> Self: ...


@dataclass(frozen=True)
class StepState:
    """How far a step is in an execution: `total` runs of it, of which `done` are over."""

    status: str
    total: int = 1
    done: int = 0


@dataclass(frozen=True)
class Box:
    """One step, or another process (`is_process`); `notes` stand below what it does, `state` is None where none is shown."""

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
    """A line along points; `is_aside` for what happens only after a failure, `is_off` for a way that was not gone."""

    points: tuple[Point, ...]
    has_arrow: bool = False
    is_aside: bool = False
    is_off: bool = False

    def moved(self, by: Point) -> "Wire":
        return replace(self, points=tuple(_sum(point, by) for point in self.points))

    @property
    def path(self) -> str:
        """As the `d` of an SVG path: corners are rounded, the arrow is part of it."""
        points = [self.points[0], *(point for before, point in pairwise(self.points) if point != before)]
        parts = [f"M{_of(points[0])}"]
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            parts.append(f"L{_of(_towards(corner, before))}Q{_of(corner)} {_of(_towards(corner, after))}")
        parts.append(f"L{_of(points[-1])}")
        if self.has_arrow and len(points) > 1:
            (x, y), x0 = points[-1], points[-2][0]
            tips = ((x - ARROW, y - ARROW), (x + ARROW, y - ARROW)) if x == x0 else ((x - ARROW, y - ARROW), (x - ARROW, y + ARROW))
            parts.append(f"M{_of(tips[0])}L{_of((x, y))}L{_of(tips[1])}")
        return "".join(parts)


@dataclass(frozen=True)
class Sign:
    """A text on the picture, centred at its place; `whole` when it was cut."""

    at: Point
    text: str
    whole: str = ""
    kind: str = "condition"

    def moved(self, by: Point) -> "Sign":
        return replace(self, at=_sum(self.at, by))


@dataclass(frozen=True)
class Frame:
    """A border around the steps of a loop, or around those that follow a failure."""

    at: Point
    size: Point
    is_aside: bool = False

    def moved(self, by: Point) -> "Frame":
        return replace(self, at=_sum(self.at, by))


@dataclass(frozen=True)
class Picture:
    """What the template draws, from the back to the front; the way begins at `middle`."""

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
    """A piece of the picture with its own corner at (0, 0); the way goes in and out at `axis`, unless it `ends` in there."""

    width: float
    height: float
    axis: float
    items: tuple[Placed, ...] = ()
    ends: bool = False
    is_off: bool = False

    def at(self, x: float, y: float) -> tuple[Placed, ...]:
        return tuple(item.moved((x, y)) for item in self.items)


@dataclass(frozen=True)
class _Drawing:
    """Turns steps into parts; with `states` those of an execution are shown on them."""

    states: Mapping[str, StepState] | None
    is_flat: bool = False
    is_aside: bool = False

    def sequence(self, lines: Sequence[StepLine]) -> _Part:
        return self.column([self.step(line) for line in lines])

    def column(self, parts: Sequence[_Part]) -> _Part:
        """One below the other, each axis on the same line."""
        if not parts:
            return _Part(PASSING_WIDTH, 0, PASSING_WIDTH / 2)
        axis = max(part.axis for part in parts)
        items: list[Placed] = []
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
        if self.states is not None:  # what would follow a failure that did not come has no state
            state = self.states.get(line.path, None if self.is_aside else StepState("pending", 0))
        count = f"{state.done}/{state.total}" if state and state.total > 1 else ""
        box = Box((0, 0), line, tuple(notes), state, self.is_aside, count=count)
        ends = line.kind == "stop" and not line.when
        is_off = self.states is not None and (state is None or state.status in ("pending", "skipped"))
        return _Part(WIDTH, box.height, WIDTH / 2, (box,), ends, is_off)

    def fork(self, line: StepLine, head: _Part) -> _Part:
        """A branch or a parallel: its groups side by side."""
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
        """Whether an execution went into a group of this step, or never came to it."""
        if self.states is None:
            return False
        return line.path not in self.states or any(inner.path in self.states for group in line.groups for inner in group.steps)

    def loop(self, line: StepLine, head: _Part) -> _Part:
        """A for_each: a frame around its steps, with the way back."""
        body = self.sequence([inner for group in line.groups for inner in group.steps])
        axis = LOOP_MARGIN + max(head.axis, body.axis)
        width = axis + max(head.width - head.axis, body.width - body.axis) + PADDING
        top = PADDING + head.height + GAP
        bottom = top + body.height + PADDING + 6
        middle = PADDING + HEIGHT / 2
        items: list[Placed] = [Frame((0, 0), (width, bottom)), *head.at(axis - head.axis, PADDING)]
        items.append(Wire(((axis, PADDING + head.height), (axis, top)), True, self.is_aside, body.is_off))
        items += body.at(axis - body.axis, top)
        if not body.ends:
            back = ((axis, top + body.height), (axis, bottom - 10), (11, bottom - 10), (11, middle), (axis - head.axis, middle))
            items.append(Wire(back, True, self.is_aside, body.is_off))
        return _Part(width, bottom, axis, tuple(items), False, head.is_off)

    def with_undo(self, part: _Part, line: StepLine) -> _Part:
        """What undoes a step, at its right side."""
        inner = _Drawing(self.states, is_aside=True).sequence(line.undo)
        head = PADDING if line.kind == "for_each" and line.groups else 0
        x, middle = part.width + ASIDE, head + HEIGHT / 2
        wire = Wire(((part.axis + WIDTH / 2, middle), (x + inner.axis - WIDTH / 2, middle)), True, True)
        items = (*part.items, wire, Sign((x - ASIDE / 2, middle - 7), _("undo"), kind="aside"), *inner.at(x, head))
        return replace(part, width=x + inner.width, height=max(part.height, head + inner.height), items=items)


def _starts(columns: Sequence[_Part], width: float) -> list[float]:
    """Where columns begin that stand side by side in the middle of `width`."""
    x = (width - sum(column.width for column in columns) - COLUMN_GAP * (len(columns) - 1)) / 2
    starts = []
    for column in columns:
        starts.append(x)
        x += column.width + COLUMN_GAP
    return starts


def picture(
    definition: Mapping[str, Any], states: Mapping[str, StepState] | None = None, *, has_ended_well: bool = False
) -> Picture:
    """The picture of a definition, a draft's mistakes included; with `states`, by path, that of an execution of it, which has
    come to its end only if it `has_ended_well`."""
    lines = outline.outline(definition)
    process, after = outline.after_failure(definition)
    count = len(list(outline.every_line([*lines, *after])))
    is_flat = count > MOST_STEPS
    shown = lines[:MOST_STEPS]
    drawing = _Drawing(states, is_flat)
    start, end = _sign_part(_how_it_starts(definition), "start"), _sign_part(_("End"), "end")
    end = replace(end, is_off=states is not None and not has_ended_well)
    main = drawing.column([start, *(drawing.step(line) for line in shown), end])
    items = list(main.items)
    width, height = main.width, main.height
    if process or after:
        aside = _after_failure(states, process, after[:MOST_STEPS], is_flat)
        items += aside.at(main.width + ASIDE, 0)
        width, height = main.width + ASIDE + aside.width, max(height, aside.height)
    placed = [item.moved((MARGIN, MARGIN)) for item in items]
    drawn = len([item for item in placed if isinstance(item, Box) and not item.is_process])
    return Picture(
        round(width + 2 * MARGIN), round(height + 2 * MARGIN), _only(placed, Frame), _only(placed, Wire), _only(placed, Sign),
        _only(placed, Box), round(main.axis + MARGIN), count - drawn,
    )  # fmt: skip


def states_of(counts: Iterable[StepCount]) -> dict[str, StepState]:
    """The state of every step that has run, by its path."""
    return {
        each.path: StepState(state_of(each.by_status), each.total, sum(each.by_status.get(status, 0) for status in OVER))
        for each in counts
    }


def _only(placed: Iterable[Placed], kind: type[T]) -> list[T]:
    return [item for item in placed if isinstance(item, kind)]


def _sign_part(text: str, kind: str) -> _Part:
    return _Part(WIDTH, 28, WIDTH / 2, (Sign((WIDTH / 2, 14), text, kind=kind),))


def _how_it_starts(definition: Mapping[str, Any]) -> str:
    given = definition.get("triggers")
    triggers = [each for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []
    kinds = [_(text) for kind, text in STARTS.items() if any(kind in each for each in triggers)]
    if not kinds:
        return _("Starts on call")
    first = ", ".join(kinds[:2])
    return _("Starts on %(first)s … or call", first=first) if len(kinds) > 2 else _("Starts on %(first)s or call", first=first)


def _after_failure(states: Mapping[str, StepState] | None, process: str, lines: Sequence[StepLine], is_flat: bool) -> _Part:
    """What follows a failure, in a frame of its own."""
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
    """A point beside a corner, on the way to its neighbour: where the rounding begins."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = abs(dx) + abs(dy)
    part = min(RADIUS, length / 2) / length if length else 0
    return corner[0] + dx * part, corner[1] + dy * part


def _of(point: Point) -> str:
    return f"{point[0]:g} {point[1]:g}"


def _cut(text: str, most: int) -> str:
    """As many characters as have room; those of East Asia take two places."""
    room = 0
    for index, character in enumerate(text):
        room += 2 if ord(character) > 0x1100 else 1
        if room > most:
            return f"{text[: max(index - 1, 1)]}…"
    return text
