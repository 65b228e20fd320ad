"""The table of docs/personal-data.md, made from the register: `.venv/bin/python -m tests.personal_data.page` writes it."""

from pathlib import Path

from appliance.core.config import Config
from appliance.personal_data import KINDS, OUTCOMES, Kind, describe_retention

PAGE = Path(__file__).parents[2] / "docs" / "personal-data.md"
BEGIN, END = "<!-- kinds -->\n", "<!-- /kinds -->\n"


def make_page() -> str:
    """The page with a table that is up to date."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}{_table()}{END}{rest.partition(END)[2]}"


def _table() -> str:
    head = ["| kind | what | exported | when the person is erased | kept otherwise |", "|---|---|---|---|---|"]
    return "".join(f"{line}\n" for line in [*head, *map(_row, KINDS)])


def _row(kind: Kind) -> str:
    tables = ", ".join(f"`{table.name}`" for table in kind.tables)
    outcome = f"{OUTCOMES[kind.erasure]}. {kind.reason}".rstrip(". ") if kind.reason else OUTCOMES[kind.erasure]
    retention = describe_retention(kind, Config()).replace(kind.setting, f"`{kind.setting}`") if kind.setting else kind.period
    return f"| `{kind.id}` | {kind.title}: {tables} | {'yes' if kind.is_exported else 'no'} | {outcome} | {retention} |"


if __name__ == "__main__":
    PAGE.write_text(make_page(), "utf-8")
