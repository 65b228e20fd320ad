"""Which paths go through, and which are refused before anything is sent."""

import pytest
from gos_connector_files.path import clean

from appliance.connectors.contract import ConfigError


@pytest.mark.parametrize("path", ["a", "a/b.txt", "späce d/ü.csv", "..a", "a..", "a/...", ".hidden", "C:x", "~"])
def test_plain_names_pass(path: str) -> None:
    assert clean(path) == path


def test_a_folder_may_end_in_a_slash() -> None:
    assert clean("a/b/") == "a/b"


@pytest.mark.parametrize(
    "path", ["", "/", "/etc/passwd", "..", "../x", "a/../b", "a/..", "./a", "a//b", "a\0b", "a\nb", "a\\..\\b", "x" * 1001, "//h/x"]
)
def test_paths_that_leave_the_root_or_are_malformed_are_refused(path: str) -> None:
    with pytest.raises(ConfigError):
        clean(path)


def test_the_root_is_the_empty_path_where_allowed() -> None:
    assert clean("", may_be_root=True) == ""
    with pytest.raises(ConfigError):
        clean("/", may_be_root=True)
