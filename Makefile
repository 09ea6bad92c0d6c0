# Every target sets up its own virtual environment first; the second time that takes no time.
PYTHON ?= python3
VENV ?= .venv
READY := $(VENV)/.ready

.PHONY: demo test check format clean

demo: $(READY)  # the four cells learn Bach chorales, side by side
	$(VENV)/bin/rru demo

test: $(READY)  # all tests, two files at a time
	$(VENV)/bin/pytest --numprocesses 2 --dist loadfile

check: $(READY)  # format, lint, types, import layers
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(READY)  # formats, and fixes what ruff can fix
	$(VENV)/bin/ruff format
	$(VENV)/bin/ruff check --fix

$(READY): pyproject.toml constraints.txt setup.py $(wildcard native/*)
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("rru needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:  # removes the virtual environment and everything built
	rm -rf $(VENV) build src/*.egg-info
