# SPDX-License-Identifier: Apache-2.0
"""A missing package is one kind of error, with a command that installs it."""

import importlib.metadata
import importlib.util
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from curator_df import extras
from curator_df.errors import CuratorError, MissingExtraError
from curator_df.extras import install_command, missing_extra, packages_of, require_package

CHECKOUT = Path(__file__).parents[1]


class Installed:
    """A distribution with the metadata that an installer leaves."""

    requires = ("dask>=2026", "resiliparse<3,>=2; extra == 'html'", 'torch>=2.6; extra == "models"')

    def __init__(self, direct_url):
        self._recorded = None if direct_url is None else json.dumps(direct_url)

    def read_text(self, name):
        assert name == "direct_url.json"
        return self._recorded


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Let curator_df be in a site-packages folder, and installed from somewhere."""

    def install(direct_url):
        monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages/curator_df/extras.py"))
        monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed(direct_url))

    return install


def arguments(extra="html"):
    command = install_command(extra)
    start = f"{shlex.quote(sys.executable)} -m pip install "
    assert command.startswith(start)
    return shlex.split(command.removeprefix(start))


def test_in_a_checkout_the_checkout_is_installed_again():
    assert arguments() == ["-e", f"{CHECKOUT}[html]"]


def test_from_an_index_the_name_is_enough(installed):
    installed(None)
    assert arguments() == ["curator-df[html]"]


def test_a_folder_or_a_wheel_is_installed_from_where_it_is(installed, tmp_path):
    folder = tmp_path / "with space"
    folder.mkdir()
    installed({"url": folder.as_uri(), "dir_info": {}})
    assert arguments() == [f"{folder}[html]"]
    installed({"url": folder.as_uri(), "dir_info": {"editable": True}})
    assert arguments() == ["-e", f"{folder}[html]"]


def test_where_the_wheel_is_gone_the_packages_are_named(installed, tmp_path):
    installed({"url": (tmp_path / "gone.whl").as_uri(), "archive_info": {}})
    assert arguments() == ["resiliparse<3,>=2"]


def test_a_repository_is_installed_at_the_same_commit(installed):
    vcs = {"vcs": "git", "commit_id": "4f1c"}
    installed({"url": "https://host/c", "vcs_info": vcs, "subdirectory": "python"})
    assert arguments() == ["curator-df[html] @ git+https://host/c@4f1c#subdirectory=python"]


def test_without_pip_uv_installs(installed, monkeypatch):
    installed(None)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else find(name))
    assert install_command("html") == f"uv pip install --python {sys.executable} 'curator-df[html]'"


def test_the_error_is_an_import_error_and_one_of_ours():
    with pytest.raises(
        MissingExtraError, match=r"^remove_html needs the package no-such-one, which is not inst"
    ) as caught:
        require_package("remove_html", "no_such_one", "html")
    assert isinstance(caught.value, (ImportError, CuratorError))
    assert isinstance(caught.value, ImportError)
    assert caught.value.name == "no_such_one"
    require_package("json", "json", "html")


def named_extras():
    """Yield (file, extra) of every call in the package."""
    for path in (CHECKOUT / "curator_df").rglob("*.py"):
        if path.name != "extras.py":
            calls = re.findall(r"(?:missing_extra|require_package)\((?:[^()]|\([^()]*\))*\)", path.read_text())
            yield from ((path.name, re.findall(r'"(\w+)"\s*\)$', call)) for call in calls)


def test_every_extra_that_is_named_exists_and_nothing_else_tells_how_to_install():
    known = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = list(named_extras())
    assert len(found) > 18
    assert [(name, extra) for name, extra in found if len(extra) != 1 or extra[0] not in known] == []
    others = [path for path in (CHECKOUT / "curator_df").rglob("*.py") if path.name != "extras.py"]
    assert [path.name for path in others if "pip install" in path.read_text()] == []


def test_packages_of_all_extras_are_found():
    requires = importlib.metadata.requires("curator-df")
    assert "dask-jobqueue" in packages_of("jobqueue", requires)
    assert "torch" in packages_of("models", requires)
    assert missing_extra("x", "y", "html").name == "y"
