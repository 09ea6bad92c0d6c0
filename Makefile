# Every target sets up its own virtual environment first; the second time that takes no time.
PYTHON ?= python3
VENV ?= .venv
READY := $(VENV)/.ready

TRITON := build/triton

.PHONY: demo test test-gpu check docs format engine sanitize fuzz soak wheels check-wheels clean

demo: $(READY)  # the four cells learn Bach chorales, side by side
	$(VENV)/bin/rru demo

test: $(READY)  # all tests, two files at a time
	$(VENV)/bin/pytest --numprocesses 2 --dist loadfile

test-gpu: $(READY) $(TRITON)  # the kernels for GPUs, run on the CPU by Triton's interpreter; downloads 290 MB
	TRITON_INTERPRET=1 PYTHONPATH=$(TRITON) $(VENV)/bin/pytest tests/scan/test_fused_triton.py

$(TRITON):  # apart from the virtual environment, whose torch must not find it
	$(VENV)/bin/python -m pip install --quiet --no-deps --target $@ triton==3.9.0

check: $(READY)  # format, lint, types, import layers
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

docs: $(READY)  # the docs as a site in site/, with every link checked
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict
	@echo 'The docs are ready: open site/index.html'

format: $(READY)  # formats, and fixes what ruff can fix
	$(VENV)/bin/ruff format
	$(VENV)/bin/ruff check --fix

engine: $(READY)  # the C engine in WebAssembly, into the package
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt ziglang
	$(VENV)/bin/python tools/build_engine.py

wheels: $(READY)  # the sdist, and a wheel for every platform, in dist/
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt auditwheel build macholib pefile 'setuptools>=77' ziglang
	$(VENV)/bin/python tools/build_wheels.py

check-wheels: $(READY)  # installs the wheel of this machine and runs what others can be emulated; needs `make wheels`
	$(VENV)/bin/python tools/check_install.py --tests
	$(VENV)/bin/python tools/selfcheck.py

fuzz: $(READY)  # random files to every reader and random calls to the layers: make fuzz MINUTES=60
	$(VENV)/bin/python -m tests.attacks.fuzz --minutes $(or $(MINUTES),5)

soak: $(READY)  # random commands, killed and disturbed, compared with undisturbed ones: make soak MINUTES=60
	$(VENV)/bin/python tools/soak --minutes $(or $(MINUTES),5)

sanitize: $(READY)  # tests of the native scans with sanitizers of addresses and undefined behaviour (GCC on Linux)
	$(VENV)/bin/python tools/sanitize.py

$(READY): pyproject.toml constraints.txt setup.py $(wildcard native/*)
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("rru needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo 'Installing rru and what it needs in $(VENV): 2 GB, a few minutes; the next time this takes no time.'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:  # removes the virtual environment and everything built
	rm -rf $(VENV) build dist site src/*.egg-info src/rru/scan/native/_native.*
