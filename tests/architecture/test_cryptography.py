"""The cryptography in use is what docs/cryptography.md lists; random values come from the system."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import ROOT, dotted_name, imported_modules, name_of, offences_in, product_files, tree_of

PAGE = (ROOT / "docs" / "cryptography.md").read_text("utf-8")
WHOLE = {"joserfc", "jwt", "nacl", "bcrypt", "paramiko", "fido2", "pyotp", "Crypto", "OpenSSL"}  # listed as a library
PARTS = {"cryptography", "argon2"}  # listed by what is imported
OF_NO_ALGORITHM = ("cryptography.exceptions.", "cryptography.x509.", "argon2.exceptions.")
NO_ALGORITHM = {"hashes", "Type", "serialization", "x509", "hazmat"}
HASHES = re.compile(r"\bhashlib\.(\w+)")
NOT_AN_ALGORITHM = {"new", "file_digest"}
TO_REFUSE = {"appliance/webapps/certificates/validation.py": {"MD5", "SHA1"}}  # names what certificates may not be signed with
JITTER = {"appliance/processes/engine/attempts.py", "appliance/monitor/deliveries.py", "appliance/core/database/writers.py"}
NATIVE = ("appliance/sandbox/", "appliance/core/confinement/", "appliance/connectors/jail.py")  # WebAssembly, seccomp, renameat2


def find_primitives(path: Path) -> set[str]:
    """The algorithms that a file names: of hashlib, and the imports from libraries of cryptography."""
    tree = tree_of(path)
    names = {match for match in HASHES.findall(path.read_text("utf-8")) if match not in NOT_AN_ALGORITHM}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and dotted_name(node).startswith("hashes."):
            names.add(node.attr)
    for _, module in imported_modules(tree):
        root, part = module.partition(".")[0], module.rpartition(".")[2]
        if root in WHOLE:
            names.add(root)
        elif root in PARTS and part not in NO_ALGORITHM and not module.startswith(OF_NO_ALGORITHM):
            names.add(part)
    return names - TO_REFUSE.get(name_of(path), set())


def is_listed(name: str) -> bool:
    return f"`{name}`" in PAGE


def test_the_page_lists_the_primitives_in_use() -> None:
    assert offences_in(product_files(), lambda path: sorted(filter(lambda name: not is_listed(name), find_primitives(path)))) == {}


def test_no_listed_primitive_is_gone() -> None:
    listed = set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE))
    used = set().union(*(find_primitives(path) for path in product_files()))
    assert len(listed) >= 8
    assert listed - used == set()


def find_weak_random(path: Path) -> Iterator[str]:
    for line, name in imported_modules(tree_of(path)):
        if name.split(".")[0] == "random" and name_of(path) not in JITTER:
            yield f"line {line} imports {name}: take `secrets`"
    if name_of(path) in SECRETS:
        for match in re.finditer(r"token_(?:urlsafe|hex|bytes)\((?:\d|1[0-5])\)", path.read_text("utf-8")):
            yield f"{match[0]}: fewer than 16 bytes"


SECRETS = {  # modules whose random values are credentials
    "appliance/tenants/sign_in/sessions.py", "appliance/tenants/invitations.py", "appliance/webapps/access/visits.py",
    "appliance/webapps/access/sign_ins.py", "appliance/documents/sharing/shares.py", "appliance/monitor/webhooks.py",
    "appliance/tenants/keys/keys.py", "appliance/connectors/oauth.py",
}  # fmt: skip


def test_random_values_come_from_the_system() -> None:
    assert {name for name in SECRETS | JITTER if not (ROOT / name).exists()} == set()
    assert offences_in(product_files(), find_weak_random) == {}


def test_native_memory_is_touched_only_where_the_sandbox_needs_it() -> None:
    def find_native(path: Path) -> list[str]:
        return [f"line {line}" for line, name in imported_modules(tree_of(path)) if name.split(".")[0] in ("ctypes", "cffi")]

    assert offences_in([path for path in product_files() if not name_of(path).startswith(NATIVE)], find_native) == {}
