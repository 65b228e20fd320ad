"""User numbers of confined processes: no two running processes share one."""

import subprocess
import sys

from appliance.core.confinement.user_numbers import take_user

FIRST = 64_000
OTHER = f"""
from appliance.core.confinement.user_numbers import take_user
taken = [take_user({FIRST}, 4) for _ in range(3)]
print(*(each.number for each in taken), flush=True)
input()
"""


def test_a_number_is_free_again_when_its_process_has_ended() -> None:
    other = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout is not None
        theirs = {int(each) for each in other.stdout.readline().split()}
        with take_user(FIRST, 4) as mine:
            assert theirs | {mine.number} == set(range(FIRST, FIRST + 4))
            with take_user(FIRST, 4) as shared:
                assert FIRST <= shared.number < FIRST + 4
        other.kill()
    users = [take_user(FIRST, 4) for _ in range(4)]
    assert {each.number for each in users} == set(range(FIRST, FIRST + 4))
    for each in users:
        each.give_back()


def test_without_a_first_number_no_user_is_claimed() -> None:
    assert [take_user(0, 4).number for _ in range(2)] == [0, 0]
