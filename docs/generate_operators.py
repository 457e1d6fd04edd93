# SPDX-License-Identifier: Apache-2.0
"""Write the tables of docs/operators.md, which are made of the docstrings of the public functions.

The Notes of each open with its contract, a paragraph of its own: ``Rows: subset. Columns: same. Backends: pandas. Peak extra
memory: 1.2 x block. Computes: no. See ``docs/profiles.md``.`` The group of a function decides which of these it needs
(`group_of`). What stands between the tables is written by hand::

    python docs/generate_operators.py          # rewrites the page
    python docs/generate_operators.py --check  # exits with 1 and says what differs

Why an operator takes no cuDF blocks comes from `curator_df.ops.host_only`, as its error does. The columns that compare with code
are held to it in ``tests/test_docs.py``.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE = Path(__file__).with_name("operators.md")
sys.path.insert(0, str(PAGE.parents[1]))

import curator_df as cdf  # noqa: E402 - of this checkout
from curator_df.ops.host_only import HOST_ONLY  # noqa: E402

FIELDS = ("Rows", "Columns", "Backends", "Peak extra memory", "Computes")
"""What a contract may say, in this order. After them may come ``See ``docs/...``.``, which becomes a link."""
NEEDED = {
    "readers": FIELDS,
    "operators": FIELDS,
    "runs": ("Rows", "Columns", "Peak extra memory", "Computes"),
    "clusters": ("Computes",),
    "values": ("Computes",),
}
"""What the contract of a function says, by its group. ``Columns`` is not needed where ``Rows`` is none."""
OF_TABLES = {"rows": "Rows", "columns": "Columns", "computes": "Computes", "peak": "Peak extra memory"}
TABLES: dict[str, dict[str, str]] = {
    "readers": {"function": "name and summary", **OF_TABLES, "backends": "Backends"},
    "operators": {"function": "name and summary", **OF_TABLES, "backends": "Backends"},
    "runs": {"function, returns": "name and returns", **OF_TABLES},
    "clusters": {"function": "name", "computes": "Computes", "returns": "returns"},
    "values": {"name": "name", "holds": "summary"},
}
"""Heads of the columns of each table, and what stands in them."""
WITH_LINK = {
    "readers": "summary",
    "operators": "summary",
    "runs": "returns",
    "clusters": "returns",
    "values": "summary",
}
"""Where the link of ``See`` goes."""


class ContractError(ValueError):
    """The docstring of a public function does not say what its row on the page needs."""


def sections_of(value: Any) -> dict[str, str]:
    """Return the text of each numpydoc section, and what stands before them under the empty name."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", inspect.getdoc(value) or "", flags=re.MULTILINE)
    return {"": parts[0].strip(), **dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))}


def contract_of(name: str, notes: str) -> dict[str, str]:
    """Return the fields of the contract with which these Notes open."""
    paragraph = " ".join(notes.split("\n\n", maxsplit=1)[0].split())
    heads = rf"(?:^|(?<=\. ))(?:({'|'.join(FIELDS)}): |(See) (?=``docs/))"
    before, *parts = re.split(heads, paragraph)
    if before or not parts:
        raise ContractError(f"{name}: its Notes do not open with a contract, such as 'Rows: same. Computes: no.'")
    found = [field or see for field, see in zip(parts[::3], parts[1::3], strict=True)]
    contract = dict(zip(found, (value.strip() for value in parts[2::3]), strict=True))
    if found != [field for field in (*FIELDS, "See") if field in contract]:
        raise ContractError(f"{name}: its contract has {', '.join(found)}; they come once each, as {', '.join(FIELDS)}")
    for field, value in contract.items():
        if not value.endswith(".") or not value.rstrip(". "):
            raise ContractError(f"{name}: '{field}' of its contract has no text that ends with a full stop")
        if more := re.search(r"\. [A-Z`].*", value):
            raise ContractError(
                f"{name}: {more[0][2:]!r} is no part of its contract; begin a paragraph after '{field}'"
            )
    return {field: value[:-1] for field, value in contract.items()}


def group_of(value: Any, contract: Mapping[str, str], returns: str) -> str:
    """Return the table in which a public value is listed: what it takes, returns and computes decides."""
    if isinstance(value, ModuleType | type):
        return "values"
    parameters = inspect.signature(value).parameters
    takes_table = next(iter(parameters), "") == "df"
    gives_table = returns.startswith(("dask.dataframe.DataFrame", "dict of str to dask.dataframe.DataFrame"))
    if hasattr(inspect.unwrap(value).__globals__.get(value.__annotations__.get("return")), "__enter__"):
        return "clusters"
    if gives_table and value.__name__.startswith("read_"):
        return "readers"
    if gives_table and takes_table and not contract.get("Computes", "").startswith("yes"):
        return "operators"
    return "values" if set(contract) <= {"Computes", "See"} and not takes_table else "runs"


def row_of(name: str, value: Any) -> tuple[str, dict[str, str]]:
    """Return the table of a public value, and what there is to say of it, as Markdown."""
    sections = sections_of(value)
    said = {"summary": sections[""].split("\n\n")[0].rstrip(".")}
    if isinstance(value, ModuleType):
        see = re.search(r"See (``docs/\S+``)\.$", sections[""], flags=re.MULTILINE)
        said |= {"See": see[1]} if see else {}
        group, members = "values", [f"``{member}``" for member in getattr(value, "__all__", ())]
        said["summary"] += f". In it: {', '.join(members)}" if members else ""
    elif isinstance(value, type):
        group = "values"
    else:
        returns = sections.get("Returns", "")
        contract = contract_of(name, sections.get("Notes", ""))
        group = group_of(value, contract, returns)
        needed = [one for one in NEEDED[group] if one != "Columns" or contract.get("Rows") != "none"]
        if missing := [field for field in needed if field not in contract]:
            raise ContractError(f"{name}: its contract does not say {', '.join(missing)}, as those of {group} do")
        said |= contract | {"returns": first_sentence(returns.partition("\n")[2])}
        if contract.get("Backends") == "pandas" and name in HOST_ONLY:
            said["Backends"] += f": {HOST_ONLY[name]}"
        if not said["returns"]:
            raise ContractError(f"{name}: its Returns have no sentence below the type")
        said["summary"] += f". {said['returns']}" if group == "values" else ""
    if "See" in said:
        said["returns" if group in {"runs", "clusters"} else "summary"] += f"; see {said['See']}"
    # A line of its own in the first cell: one column less leaves the others room.
    said |= {f"name and {key}": f"``{name}``<br>{said[key]}" for key in ("summary", "returns") if key in said}
    said["name"] = f"``{name}``"
    return group, {key: markdown(text) for key, text in said.items()}


def first_sentence(text: str) -> str:
    """Return the first sentence without its full stop."""
    return re.split(r"\.(?:\s|$)", " ".join(text.split()), maxsplit=1)[0]


def markdown(text: str) -> str:
    """Return the markup of docstrings as that of a cell of the page."""
    text = re.sub(r"``docs/([\w/]+\.md)(#[\w-]+)?``", r"[\1](\1\2)", text)
    text = re.sub(r"(?::\w+:)?(`+)(.+?)\1", r"`\2`", text)
    # The heading of the column says that it is a multiple of the block.
    return re.sub(r"(\d\.\d) x\b(?: block\b)?", r"\1", text).replace("|", r"\|")


def tables(public: Mapping[str, Any]) -> dict[str, str]:
    """Return the Markdown of each table, by its group."""
    lines = {group: [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"] for group, heads in TABLES.items()}
    for name, value in public.items():
        group, said = row_of(name, value)
        lines[group].append(f"| {' | '.join(said.get(key, '-') for key in TABLES[group].values())} |")
    return {group: "\n".join(table) for group, table in lines.items()}


def generated(page: str, public: Mapping[str, Any]) -> str:
    """Return the page with its tables made anew."""
    for group, table in tables(public).items():
        between = re.compile(rf"(<!-- generated: {group} -->\n).*?(<!-- end -->)", flags=re.DOTALL)
        page, replaced = between.subn(lambda marks, table=table: f"{marks[1]}\n{table}\n\n{marks[2]}", page)
        if replaced != 1:
            raise ContractError(
                f"the page has {replaced} places '<!-- generated: {group} -->' ... '<!-- end -->', not one"
            )
    return page


def public_values() -> dict[str, Any]:
    """Return everything public by its name, in order."""
    return {name: getattr(cdf, name) for name in cdf.__all__}


def main(arguments: Sequence[str]) -> int:
    """Rewrite the page, or with ``--check`` say what differs."""
    before = PAGE.read_text()
    try:
        after = generated(before, public_values())
    except ContractError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    if "--check" not in arguments:
        PAGE.write_text(after)
        return 0
    difference = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "operators.md", "docstrings", "", "", 0, ""
    )
    sys.stdout.writelines(f"{line}\n" for line in difference)
    return int(before != after)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
