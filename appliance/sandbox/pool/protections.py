"""The protections that confine a sandbox process, as it reports them at its start, and their descriptions for operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Protections:
    """The protections of one process.

    `seccomp`: whether system calls are filtered; `landlock`: its version, 0 if the kernel has none; `user`: the user id it
    switched to if started as root; `was_root`: whether it was started as root.
    """

    seccomp: bool = False
    landlock: int = 0
    user: int | None = None
    was_root: bool = False

    def lines(self) -> Iterator[tuple[bool, str]]:
        """For each protection, whether it is active and a sentence about it."""
        yield (
            self.seccomp,
            "seccomp: a sandbox process can only compute and talk to the appliance"
            if self.seccomp
            else "seccomp: this kernel or processor has no filter for system calls; WebAssembly alone holds step code",
        )
        yield (
            self.landlock > 0,
            f"landlock: no path and no port is in its reach (version {self.landlock})"
            if self.landlock
            else "landlock: this kernel does not offer it, which leaves the filter of system calls",
        )
        yield self.user is not None or not self.was_root, self._user_line()
        yield True, "privileges: no capabilities, no new privileges, descriptors of its sockets and runtimes only"

    def _user_line(self) -> str:
        if self.user is not None:
            return f"user: each sandbox process is a user of its own (now {self.user}), which owns nothing"
        if self.was_root:
            return "user: sandbox processes stay root without capabilities; run the appliance as an ordinary user"
        return "user: sandbox processes are the appliance's own user, who is not root"


def weakest(protections: Sequence[Protections]) -> Protections:
    """The protections that all of these processes have."""
    users = [each.user for each in protections]
    return Protections(
        seccomp=all(each.seccomp for each in protections),
        landlock=min(each.landlock for each in protections),
        user=None if None in users else users[0],
        was_root=any(each.was_root for each in protections),
    )
