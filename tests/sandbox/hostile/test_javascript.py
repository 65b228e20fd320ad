"""Hostile JavaScript and TypeScript: every script of the corpus ends as it must, and reaches nothing."""

from __future__ import annotations

import pytest

from tests.sandbox.hostile.checks import check_script
from tests.sandbox.hostile.corpus import Script, read_family
from tests.sandbox.hostile.yard import Yard


@pytest.mark.parametrize("script", read_family("javascript"), ids=lambda script: script.id)
def test_hostile_javascript(script: Script, javascript_yard: Yard) -> None:
    check_script(script, javascript_yard)
