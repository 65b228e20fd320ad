"""Hostile PHP: every script of the corpus ends as it must, and reaches nothing."""

from __future__ import annotations

import pytest

from tests.sandbox.hostile.checks import check_script
from tests.sandbox.hostile.corpus import Script, read_family
from tests.sandbox.hostile.yard import Yard


@pytest.mark.parametrize("script", read_family("php"), ids=lambda script: script.id)
def test_hostile_php(script: Script, php_yard: Yard) -> None:
    check_script(script, php_yard)
