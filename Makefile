# What a person starts by hand. Every target makes .venv first if it is not there.
#
#   make demo                                a search of minutes on two cores, with its report
#   make test | lint | docs | bench | test-all
#   make demo CONSTRAINTS=constraints.txt    with the versions that were green last

PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?=
RUN ?= archray-runs/demo-$(shell date +%Y%m%d-%H%M%S)
PYTEST_ARGS ?=
SLOW ?= slow
# Processes that run tests, each with a Ray of its own; a test file stays in one process (tests/conftest.py).
TEST_PROCESSES ?= 2

# The folder of .venv may be given relative or absolute; commands that change folder need it absolute.
BIN := $(abspath $(VENV))/bin
INSTALLED := $(VENV)/.installed
ROOMS := platform searchers trainables cluster
# Where it is set, every process of Ray would compile archray's modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test test-all test-slow test-avx2 test-extras test-lower-bounds lint docs format bench constraints clean
.DELETE_ON_ERROR:

help:
	@sed -n '3,5s/^# *//p' Makefile

install: $(INSTALLED)

$(INSTALLED): pyproject.toml setup.py
	@command -v $(PYTHON) >/dev/null || { \
	  echo "archray needs Python 3.11 or newer; there is no '$(PYTHON)'. Install one, or say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "archray needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V). Say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "no virtual environment could be made; on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "Installing archray and what it needs into $(VENV): about 2 minutes and 6.6 GB, once."
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/archray search hnas --space nasbench201 --data glyphs --set data.image_size=16 --preset demo --out $(RUN)

PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
test: $(INSTALLED)
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-slow: $(INSTALLED)
	$(PYTEST) -m "$(SLOW)" --durations=40 $(PYTEST_ARGS)

# oneDNN has other kernels for CPUs without AVX-512, and one of them wrote past its memory. The tests of convolutions run
# with these kernels and with a heap that glibc checks (from 2.34 on that needs the library; without it the loader prints
# a warning). Then one search per family of networks.
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 MALLOC_CHECK_=3 LD_PRELOAD=libc_malloc_debug.so.0
test-avx2: $(INSTALLED)
	$(AVX2) $(PYTEST) -m "not slow" $(PYTEST_ARGS) $(wildcard tests/trainables/test_nets*.py) \
	  tests/trainables/test_strided_pointwise.py tests/trainables/test_supernet.py tests/trainables/test_sliced_supernet.py
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && export ONEDNN_MAX_CPU_ISA=AVX2 && \
	for search in "random --space nasbench201" "gaea-pc-darts --space darts" "random --space nasbench1shot1-1" "random --space vit"; do \
	  $(BIN)/archray search $$search --data digits --preset smoke --out "$$folder/$$(echo $$search | tr -d ' ')" || exit 1; \
	done

# Everything that needs an optional dependency: all extras together, 500 MB.
EXTRAS ?= adversarial,bohb,export,guides,nats-bench,timm,tune-searchers
test-extras: $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[$(EXTRAS)]'
	$(PYTEST) -m "extra$(if $(CI), and (ci or not slow))" $(PYTEST_ARGS)

# Everything there is, about three hours on two cores. Every job runs, and a table of them ends the output.
test-all: $(INSTALLED)
	bash .ci/all

# The oldest versions that pyproject.toml allows, in an environment of their own, which is removed when it has passed.
test-lower-bounds: $(INSTALLED)
	bash .ci/lower-bounds $(PYTHON)

lint: $(INSTALLED) build/mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	cd build/mypy && PYTHONPATH=. $(BIN)/lint-imports ../../pyproject.toml --no-cache --no-logo
	cd build/mypy && $(BIN)/mypy --config-file ../../pyproject.toml -p archray

# mypy and import-linter cannot follow the mapping of an editable install: here links show them the package as a wheel
# would lay it out. import-linter reads packages only, so `platform` gets an empty __init__.py.
.PHONY: build/mypy
build/mypy:
	@rm -rf $@/archray && mkdir -p $@/archray
	@for file in archray/*; do ln -s "$(CURDIR)/$$file" $@/archray/; done
	@for room in $(filter-out platform,$(ROOMS)); do ln -s "$(CURDIR)/$$room" $@/archray/; done
	@mkdir $@/archray/platform && touch $@/archray/platform/__init__.py
	@ln -s "$(CURDIR)"/platform/* $@/archray/platform/

# The documentation site, in build/site; a warning, such as a link that leads nowhere, is an error.
DOCS_INSTALLED := $(VENV)/.installed-docs
docs: $(DOCS_INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "The documentation: build/site/index.html; its search needs a server: python3 -m http.server --directory build/site"

$(DOCS_INSTALLED): $(INSTALLED)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable '.[docs]'
	@touch $@

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	$(BIN)/python benchmarks/proxy_scoring.py

# Writes down what is installed, as the versions that were green; torch pins its CUDA packages itself.
constraints: $(INSTALLED)
	@mkdir -p build
	sed '/^[^#]/d' constraints.txt > build/constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable | grep -v -E '^(nvidia-|cuda-|#)' >> build/constraints.txt
	mv build/constraints.txt constraints.txt

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
