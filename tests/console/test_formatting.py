"""Figures are formatted as the columns of a chart."""

from appliance.console.frame.formatting import columns_of
from appliance.monitor import Summary


def point(good: int, bad: int) -> Summary:
    return Summary({"succeeded": good, "failed": bad})


def test_columns_are_stacked_with_failures_at_the_bottom() -> None:
    columns = columns_of([(0, point(0, 0)), (1, point(3, 1)), (2, point(2, 0))], 30, 20, 1)
    assert columns.none == "M0.0 18h9.0v2h-9.0z"
    assert columns.good == "M10.0 0.0h9.0v15.0h-9.0zM20.0 10.0h9.0v10.0h-9.0z"
    assert columns.bad == "M10.0 15.0h9.0v5.0h-9.0z"
