"""The keys of folders in the index `document_tree`, in which a folder stands directly before its subfolders.

Names have no control characters, so everything below a folder sorts together.
"""

END, AFTER_END, LAST = "\x01", "\x02", "\U0010ffff"
KEY = f"(replace(folder, '/', '{END}') || '{END}')"


def start_key(path: str) -> str:
    """The key of a folder, or of everything for the root; all keys below begin with it."""
    return f"{path.replace('/', END)}{END}" if path else ""


def end_key(path: str) -> str:
    """A key after everything below the folder."""
    return f"{path.replace('/', END)}{AFTER_END}" if path else LAST
