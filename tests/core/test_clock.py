"""Times and durations of the contract."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core import clock
from appliance.core.errors import ValidationFailed


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_a_time_comes_back_from_its_text(moment: int) -> None:
    text = clock.rfc3339(moment)
    assert len(text) == 24
    assert text.endswith("Z")
    assert clock.parse_rfc3339(text) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00.5+01:00", 500),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2026-01-31T09:30:00.123456Z", 1_769_851_800_123),
    ],
)
def test_times_are_read(text: str, moment: int) -> None:
    assert clock.parse_rfc3339(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T09:30:00",
        "2026-02-30T00:00:00Z",
        "2026-01-31T25:00:00Z",
        "0",
        "20260131T093000Z",
        "2026-W05-6T00:00:00Z",
        "2026-01-31 09:30:00Z",
    ],
)
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        clock.parse_rfc3339(text, pointer="/run_at")
    assert refusal.value.details[0].pointer == "/run_at"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("48h", 172_800_000), ("90d", 7_776_000_000), ("0s", 0),
        ("PT30S", 30_000), ("PT1.5S", 1500), ("P1DT2H3M4S", 93_784_000), ("P2D", 172_800_000), ("PT0.001S", 1),
    ],
)  # fmt: skip
def test_durations_are_read(text: str, ms: int) -> None:
    assert clock.parse_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", "10", "-1s", "1.5h", "10 m", "m", "P", "PT", "P1Y", "P1M", "1h30m", "٣s", "1s\n", "9" * 16 + "s"]
)
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValidationFailed):
        clock.parse_duration(text)


def test_an_optional_time_may_be_none() -> None:
    assert clock.optional_rfc3339(None) is None
    assert clock.optional_rfc3339(0) == "1970-01-01T00:00:00.000Z"


def test_without_a_readable_boot_id_each_process_gets_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock.boot_id() == Path(clock._BOOT_ID).read_text().strip()
    monkeypatch.setattr(clock, "_BOOT_ID", str(tmp_path / "hidden"))
    unnamed = clock.boot_id.__wrapped__
    assert len(unnamed()) == 32
    assert unnamed() != unnamed()
