# Commands of development; `make` lists them.
python = .venv/bin/python

.PHONY: help setup quick test lint types notebooks docs pictures ci

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## create the environment of development in .venv
	python3 -m venv .venv
	.venv/bin/pip install -q -e ".[test]"

quick:  ## run the tests marked quick
	$(python) -m pytest -q -m "quick and not slow and not proof"

test:  ## run all tests but measured runs, two at a time
	$(python) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not proof"

lint:  ## check style
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types:  ## check types
	.venv/bin/mypy --strict curator_df

notebooks:  ## run the notebooks, so that `make docs` shows their outputs
	CURATOR_DF_NOTEBOOKS=$(CURDIR)/docs/_build/notebooks $(python) -m pytest -q -m "slow or proof" tests/test_notebooks.py

docs:  ## build the pages in docs/_build
	.venv/bin/pip install -q -e ".[docs]"
	CURATOR_DF_NOTEBOOKS=$(CURDIR)/docs/_build/notebooks .venv/bin/sphinx-build -W --keep-going -q docs docs/_build

pictures:  ## take the pictures of the README and the pages, with Chromium
	$(python) -m docs.take_pictures

ci:  ## run everything that has to pass, in a copy of the checkout
	bash .ci/run
