# SPDX-License-Identifier: Apache-2.0
"""Commands ``curator-df recipe list``, ``show`` and ``schema``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

recipe_app = typer.Typer(no_args_is_help=True, help="List and show recipes.", rich_markup_mode=None)


@recipe_app.command("list", short_help="List the shipped recipes.")
def list_recipes() -> None:
    """List the shipped recipes with what each reproduces."""
    from curator_df.recipes.shipped import shipped_about

    about = shipped_about()
    width = max(map(len, about))
    for name, said in about.items():
        typer.echo(f"{name:{width}}  {said['reproduces']}")


@recipe_app.command(short_help="Show the file of a shipped recipe.")
def show(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a shipped recipe.")]) -> None:
    """Show the file of a shipped recipe, to copy and change: `curator-df recipe show fineweb > mine.yaml`."""
    from curator_df.recipes.shipped import shipped_text

    typer.echo(shipped_text(name), nl=False)


@recipe_app.command(short_help="Show the JSON Schema of recipes.")
def schema() -> None:
    """Show the JSON Schema of recipe files, for editors and checks: `curator-df recipe schema > recipe.schema.json`."""
    from curator_df.recipes.json_schema import recipe_schema

    typer.echo(json.dumps(recipe_schema(), indent=1))
