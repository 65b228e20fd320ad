"""The confinement of a sandbox process, as the kernel reports it and as seen from inside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from appliance.core.confinement import landlock
from appliance.sandbox import Pool, Program, Settings
from appliance.sandbox.pool.process import FIRST_USER, USERS
from appliance.sandbox.pool.protections import Protections, weakest

AS_ROOT = os.geteuid() == 0
DECISION = {
    "nodes": [{"id": "1", "type": "inputNode", "name": "in"}, {"id": "2", "type": "outputNode", "name": "out"}],
    "edges": [{"id": "e", "sourceId": "1", "targetId": "2"}],
}


def statuses(number: int) -> Iterator[dict[str, str]]:
    """The kernel's status of every thread of a process."""
    for thread in Path(f"/proc/{number}/task").iterdir():
        yield {name: value.strip() for name, value in (x.split(":", 1) for x in (thread / "status").read_text().splitlines())}


def decision_process(pool: Pool) -> int:
    assert pool.decide(DECISION, {}).failure is None
    return pool._decisions.process_ids()[0]


def test_every_thread_has_no_capability_and_a_filter(pool: Pool) -> None:
    for number in [*pool.process_ids(), decision_process(pool)]:
        results = list(statuses(number))
        assert results
        for status in results:
            assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} <= (
                {"0" * 16} if AS_ROOT else {"0" * 16, status["CapBnd"]}
            )
            assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_each_process_is_a_user_of_its_own_or_else_not_root(pool: Pool) -> None:
    numbers = [*pool.process_ids(), decision_process(pool)]
    users = []
    for number in numbers:
        owners = {(*status["Uid"].split(), *status["Gid"].split(), status["Groups"]) for status in statuses(number)}
        assert len(owners) == 1
        one = owners.pop()
        assert len(set(one[:8])) == 1
        assert one[8] == ""
        users.append(int(one[0]))
    if not AS_ROOT:
        assert set(users) == {os.getuid()}
        return
    assert len(set(users)) == len(numbers)
    assert all(FIRST_USER <= user < FIRST_USER + USERS for user in users)
    protections = pool.protections()
    assert protections is not None
    assert protections.user in users


def test_the_kernel_refuses_it_further_processes_and_would_end_it_first(pool: Pool) -> None:
    for number in pool.process_ids():
        limits = Path(f"/proc/{number}/limits").read_text().splitlines()
        assert next(line.split()[2:4] for line in limits if line.startswith("Max processes")) == ["0", "0"]
        assert int(Path(f"/proc/{number}/oom_score_adj").read_text()) >= 800


def test_it_holds_only_its_sockets_and_runtimes(pool: Pool) -> None:
    # One socket for each place and one for orders; the decision engine makes a pair for itself.
    expected = dict.fromkeys(pool.process_ids(), pool.settings.slots + 1) | {decision_process(pool): 4}
    for number, count in expected.items():
        opened = sorted(str(each.readlink()) for each in Path(f"/proc/{number}/fd").iterdir())
        sockets = [each for each in opened if each.startswith("socket:")]
        assert len(sockets) == count
        rest = [Path(each).name for each in opened if each not in sockets and not each.endswith("(deleted)")]
        kernel = {"anon_inode:[eventpoll]", "anon_inode:[eventfd]"}
        assert set(rest) <= {"null", "pagemap", "quickjs.cwasm", "swc.cwasm"} | kernel
        assert [Path(f"/proc/{number}/fd/{each}").readlink() for each in (0, 1)] == [Path("/dev/null")] * 2


INSIDE = """
import encodings.idna, errno, os, socket, sys
from appliance.core.confinement import confinement, landlock
us, user = os.getpid(), int(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0))
parent, child = os.getppid(), os.fork()
if not child:
    os.read(0, 1)
    os._exit(0)
confinement.confine()
became = confinement.become_nobody(user or None)
version = landlock.reach_nothing()
confinement.forbid_processes()
attempts = {
    "read": lambda: open("/etc/passwd"),
    "list": lambda: os.listdir("/"),
    "write": lambda: open("/tmp/gos-canary", "w"),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "become root": lambda: os.setresuid(0, 0, 0) or (os.getuid() or sys.exit(4)),
    "chroot": lambda: os.chroot("/"),
}
if version >= 4:
    attempts["connect"] = lambda: socket.create_connection(listener.getsockname(), 1)
    attempts["listen"] = lambda: socket.create_server(("127.0.0.1", 0))
if version >= 6:
    attempts["signal"] = lambda: os.kill(child, 0)
    attempts["signal the appliance"] = lambda: os.kill(parent, 0)
if became or os.getuid():
    attempts["fork"] = lambda: os.fork() or os._exit(0)
for name, attempt in attempts.items():
    if name == "become root" and not (became or os.getuid()):
        continue
    if name in ("read", "list", "write", "exec") and not version:
        continue
    try:
        attempt()
    except OSError as refused:
        assert refused.errno in (errno.EACCES, errno.EPERM, errno.EAGAIN), (name, refused)
    else:
        os.write(2, name.encode())
        os._exit(1)
print(became, version, *sorted(attempts))
"""


def inside(user: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", INSIDE, str(user)], capture_output=True, check=False, timeout=30, text=True, stdin=subprocess.PIPE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(maxsplit=2)


def test_without_the_filter_user_and_landlock_hold_by_themselves() -> None:
    became, version, attempts = inside(FIRST_USER)
    assert (became, version) == (str(FIRST_USER if AS_ROOT else None), str(landlock.known_version()))
    assert "fork" in attempts


def test_a_process_that_keeps_its_user_is_confined_and_has_no_privilege() -> None:
    became, version, attempts = inside(0)
    assert (became, version) == ("None", str(landlock.known_version()))
    assert "chroot" in attempts


def test_root_can_be_kept_where_no_other_user_exists(prepared: None, make_program: Callable[..., Program]) -> None:
    created_pool = Pool(Settings(processes=1, slots=1, first_user=0))
    created_pool.start()
    try:
        assert created_pool.run(make_program("export default () => 1"), {}).output == 1
        protections = created_pool.protections()
        assert protections is not None
        assert protections.user is None
        (number,) = created_pool.process_ids()
        assert {status["CapEff"] for status in statuses(number)} == {"0" * 16}
        user_lines = [holds for holds, text in protections.lines() if text.startswith("user:")]
        assert user_lines == [not AS_ROOT]
    finally:
        created_pool.stop()


def test_an_operator_reads_one_line_for_each_protection() -> None:
    def levels(*values: Any) -> dict[str, bool]:
        return {text.split(":")[0]: holds for holds, text in Protections(*values).lines()}

    assert levels(True, 7, 65_100, True) == {"seccomp": True, "landlock": True, "user": True, "privileges": True}
    assert levels(False, 0, None, True) == {"seccomp": False, "landlock": False, "user": False, "privileges": True}
    assert levels(True, 1, None, False)["user"]


def test_the_protections_of_the_weakest_process_are_reported() -> None:
    weak, strong = Protections(False, 0, None, True), Protections(True, 7, 65_100, True)
    assert weakest([strong, weak]) == weak
    assert weakest([strong, strong]) == strong
