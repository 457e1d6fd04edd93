# SPDX-License-Identifier: Apache-2.0
"""Names are imported when they are first used, and actions wait for a package."""

import inspect
import subprocess
import sys
import textwrap
from importlib import import_module

import pytest

import curator_df as cdf
from curator_df.core.importing import lazy_names, when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that is not imported yet, with a module that cannot be imported at first."""
    folder = tmp_path / "lazy_example"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "values.py").write_text("ONE = 1\n")
    (folder / "broken.py").write_text("raise ValueError('not yet')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy_example"]:
        del sys.modules[name]


def in_new_process(program):
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_a_name_is_imported_when_it_is_first_used(package):
    namespace = {"__all__": ["one", "values"]}
    find = lazy_names("lazy_example", {"one": "values:ONE", "values": "values"}, namespace)
    assert "lazy_example.values" not in sys.modules
    assert find("one") == 1
    assert namespace["one"] == 1
    assert find("values") is sys.modules["lazy_example.values"]
    with pytest.raises(AttributeError, match=r"module 'lazy_example' has no attribute 'ome'. Did you mean 'one'\?"):
        find("ome")


def test_a_function_stays_the_same_object_however_often_it_is_asked_for(package):
    """Methods of tables ask by name for what the package may have imported before."""
    (package / "values.py").write_text("def one():\n    return 1\n")
    namespace = {"__all__": ["one"]}
    find = lazy_names("lazy_example", {"one": "values:one"}, namespace)
    first = find("one")
    assert first() == 1
    assert find("one") is first is namespace["one"]


def test_an_action_follows_the_import_of_a_module_once(package):
    happened = []
    when_imported("lazy_example.values", lambda: happened.append(sys.modules["lazy_example.values"].ONE))
    assert happened == []
    for _ in range(2):
        import_module("lazy_example.values")
        assert happened == [1]
        del sys.modules["lazy_example.values"]
    import_module("lazy_example.values")
    when_imported("lazy_example.values", lambda: happened.append("at once"))
    assert happened == [1, "at once"]


def test_an_action_waits_until_the_module_can_be_imported(package):
    happened, finders = [], list(sys.meta_path)
    when_imported("lazy_example.broken", lambda: happened.append(True))
    with pytest.raises(ValueError, match="not yet"):
        import_module("lazy_example.broken")
    assert happened == []
    (package / "broken.py").write_text("TWO = 2  # and a longer file\n")
    assert import_module("lazy_example.broken").TWO == 2
    assert happened == [True]
    assert sys.meta_path == finders


def test_every_public_name_is_found_where_it_is_defined():
    for name, place in cdf._PLACES.items():
        module, _, member = place.partition(":")
        assert inspect.unwrap(getattr(cdf, name)) is (
            getattr(sys.modules[f"curator_df.{module}"], member) if member else sys.modules[f"curator_df.{module}"]
        )
    assert set(cdf._PLACES) == set(cdf.__all__)
    for folder in cdf._FOLDERS:
        assert getattr(cdf, folder) is sys.modules[f"curator_df.{folder}"]


def test_importing_the_package_imports_neither_dask_nor_pandas():
    found = in_new_process("import curator_df, sys; print(*sys.modules)")
    assert not {"dask", "distributed", "numpy", "pandas", "pyarrow"} & set(found)


@pytest.mark.parametrize("order", ["import curator_df, dask.dataframe", "import dask.dataframe, curator_df"])
def test_tables_have_the_operators_in_whichever_order_packages_are_imported(order):
    program = f"""
        {order}
        import dask.dataframe as dd, pandas as pd, sys
        assert "curator_df.ops.filters.profile" not in sys.modules
        docs = dd.from_pandas(pd.DataFrame({{"text": ["a  b"]}}), npartitions=1)
        print(docs.curate.normalize_whitespace().compute()["text"].iloc[0])
        print(*[name for name in dir(docs.curate) if not name.startswith("_")])
    """
    words = in_new_process(program)
    assert words[:2] == ["a", "b"]
    assert {"keep_profile", "write_parquet"} <= set(words)
