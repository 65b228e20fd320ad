"""The memory of a template is written as data without the zeros, and without taking many times its own size."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from appliance.sandbox.runtimes.wasmfile import _data_segments

IMAGES = st.lists(st.sampled_from([b"\0", b"\0\0\0", b"a", b"bc"]), max_size=30).map(b"".join)


@given(IMAGES, st.integers(min_value=1, max_value=5))
def test_segments_contain_all_bytes_but_zeros_and_no_long_gap(image: bytes, gap: int) -> None:
    segments = _data_segments(image, gap)
    filled = bytearray(len(image))
    last = -gap
    for begin, end in segments:
        assert begin - last >= gap
        assert image[begin]
        assert bytes(gap) not in image[begin:end]
        filled[begin:end] = image[begin:end]
        last = end
    assert bytes(filled) == image


def test_finding_segments_takes_no_memory_for_each_byte() -> None:
    image = b"code\0" * 200_000
    tracemalloc.start()
    try:
        assert _data_segments(image, 64) == [(0, len(image))]
        assert tracemalloc.get_traced_memory()[1] < len(image)
    finally:
        tracemalloc.stop()
