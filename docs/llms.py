# SPDX-License-Identifier: Apache-2.0
"""Make ``llms.txt``, the whole API and the list of pages in one short text, for agents: ``python docs/llms.py``.

The site has it at ``/llms.txt``. It is made of docstrings and pages, so that nothing in it is written twice.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

import curator_df as cdf  # noqa: E402 - of this checkout

RULES = """\
- Everything is lazy until a `write_`, `find_`, `describe_`, `checkpoint`, `shuffle_rows` or `blend` runs it
  on the cluster that is open.
- Start one cluster with `cdf.start_cluster(memory="4GB")` in a `with` statement; a script needs `if __name__ == "__main__":`.
- Chain with `docs.pipe(cdf.keep_language, "en")` or `docs.curate.keep_language("en")`. Options are keyword-only.
- `cdf.explain(docs)` says whether a run fits and what it needs; `cdf.preview(docs)` runs a chain on a few rows.
- Continue an interrupted run with `on_existing="resume"`. Keep dropped rows with their reasons with `rejects="folder/"`.
- Errors are classes of `cdf.errors`; a message says what to change. `curator-df explain INPUT --json` and `--json`
  of the other commands answer in JSON."""


def page() -> str:
    """Return the text."""
    index = (DOCS / "index.md").read_text()
    about = " ".join(index.split("\n\n")[1].split())
    example = re.search(r"```python\n.*?```", index, re.DOTALL)
    parts = ["# curator_df", f"> {about}", example[0] if example else "", RULES]
    parts += ["## Functions and classes", "\n".join(_names()), "## Pages", "\n".join(_pages())]
    return "\n\n".join(parts) + "\n"


def _names() -> Iterator[str]:
    """Yield a line for each public name: its signature, without types, and its summary."""
    for name in cdf.__all__:
        made = getattr(cdf, name)
        summary = (inspect.getdoc(made) or "").partition("\n")[0]
        if isinstance(made, ModuleType):
            yield f"- `{name}` (module): {summary}"
        elif inspect.isclass(made):
            yield f"- `{name}` (class): {summary}"
        else:
            yield f"- `{name}({', '.join(_parameters(made))})`: {summary}"


def _parameters(function: object) -> Iterator[str]:
    """Yield each parameter, with a star before the first that is keyword-only."""
    is_starred = False
    for parameter in inspect.signature(function).parameters.values():  # type: ignore[arg-type]
        if parameter.kind is parameter.KEYWORD_ONLY and not is_starred:
            is_starred = True
            yield "*"
        is_starred |= parameter.kind is parameter.VAR_POSITIONAL
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        yield f"{str(parameter).partition(':')[0].partition('=')[0]}{default}"


def _pages() -> Iterator[str]:
    """Yield a line for each page of the site, by its title."""
    for path in sorted(DOCS.rglob("*.md")):
        place = path.relative_to(DOCS)
        if place.parts[0] not in ("_build", "decisions"):
            title = path.read_text().partition("\n")[0].removeprefix("# ")
            yield f"- [{title}]({place.with_suffix('.html').as_posix()})"


if __name__ == "__main__":
    sys.stdout.write(page())
