# Commands for users and developers. Every target creates .venv first if it does not exist.
#
#   make demo                                run a search with a report (minutes on two cores)
#   make test | lint | docs | bench | dist | test-all | test-plain-ray
#   make demo CONSTRAINTS=constraints.txt    use the versions that passed all tests last

PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?=
RUN ?= archray-runs/demo-$(shell date +%Y%m%d-%H%M%S)
PYTEST_ARGS ?=
SLOW ?= slow
# Test processes, each with its own Ray; all tests of a file run in one process (tests/conftest.py).
TEST_PROCESSES ?= 2

# VENV may be a relative or an absolute path; commands that change the folder need an absolute path.
BIN := $(abspath $(VENV))/bin
INSTALLED := $(VENV)/.installed
PACKAGES := platform searchers trainables cluster
# If this variable were set, every process of Ray would compile archray's modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test test-all test-slow test-avx2 test-extras test-lower-bounds test-plain-ray lint docs docs-tables format bench constraints dist clean
.DELETE_ON_ERROR:

help:
	@sed -n '3,5s/^# *//p' Makefile

install: $(INSTALLED)

$(INSTALLED): pyproject.toml setup.py
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Expected Python 3.11 or newer, but '$(PYTHON)' does not exist. Install Python, or run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Expected Python 3.11 or newer, got $$($(PYTHON) -V). Run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "Cannot create a virtual environment. On Debian, run: apt install python3-venv" >&2; exit 1; }
	@echo "Installing archray and its dependencies into $(VENV) (once, about 2 minutes and 6.6 GB)."
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/archray search rank-surrogate --space nasbench201 --data glyphs --set data.image_size=16 --budget 8 --final-seeds 2 --final-epochs 8 --random 3 --out $(RUN)

PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
test: $(INSTALLED)
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-slow: $(INSTALLED)
	$(PYTEST) -m "$(SLOW)" --durations=40 $(PYTEST_ARGS)

# oneDNN has different kernels for CPUs without AVX-512, and one of them wrote beyond its memory. The tests of
# convolutions run with these kernels and with a heap that glibc checks (since glibc 2.34 this needs the library; without
# it the loader prints a warning). Then one search runs for each family of networks.
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 MALLOC_CHECK_=3 LD_PRELOAD=libc_malloc_debug.so.0
test-avx2: $(INSTALLED)
	$(AVX2) $(PYTEST) -m "not slow" $(PYTEST_ARGS) $(wildcard tests/trainables/test_nets*.py) \
	  tests/trainables/test_strided_pointwise.py tests/trainables/test_supernet.py tests/trainables/test_sliced_supernet.py
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && export ONEDNN_MAX_CPU_ISA=AVX2 && \
	for search in "random --space nasbench201" "gaea-pc-darts --space darts" "random --space nasbench1shot1-1" "random --space vit"; do \
	  $(BIN)/archray search $$search --data digits --preset smoke --out "$$folder/$$(echo $$search | tr -d ' ')" || exit 1; \
	done

# All tests that need an optional dependency; the extras take 500 MB together.
EXTRAS ?= adversarial,bohb,export,guides,huggingface,nats-bench,timm,tune-searchers
test-extras: $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[$(EXTRAS)]'
	$(PYTEST) -m "extra$(if $(CI), and (ci or not slow))" $(PYTEST_ARGS)

# All jobs, hours on two cores. Every job runs to its end, and the output ends with a table of results.
test-all: $(INSTALLED)
	bash .ci/all

# Tests with the oldest versions that pyproject.toml allows, in a temporary environment.
test-lower-bounds: $(INSTALLED)
	bash .ci/lower-bounds $(PYTHON)

# Tests without private names of Ray. The second variable is needed because tests import Ray before archray.
PLAIN_RAY_TESTS ?= tests/cluster tests/platform
test-plain-ray: $(INSTALLED)
	ARCHRAY_PLAIN_RAY=1 RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 $(PYTEST) -m "not extra" $(PYTEST_ARGS) $(PLAIN_RAY_TESTS)

lint: $(INSTALLED) build/mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	cd build/mypy && PYTHONPATH=. $(BIN)/lint-imports ../../pyproject.toml --no-cache --no-logo
	cd build/mypy && $(BIN)/mypy --config-file ../../pyproject.toml -p archray

# mypy and import-linter cannot follow the mapping of an editable install. Links in this folder reproduce the layout of a
# wheel. import-linter reads only packages, so `platform` gets an empty __init__.py.
.PHONY: build/mypy
build/mypy:
	@rm -rf $@/archray && mkdir -p $@/archray
	@for file in archray/*; do ln -s "$(CURDIR)/$$file" $@/archray/; done
	@for package in $(filter-out platform,$(PACKAGES)); do ln -s "$(CURDIR)/$$package" $@/archray/; done
	@mkdir $@/archray/platform && touch $@/archray/platform/__init__.py
	@ln -s "$(CURDIR)"/platform/* $@/archray/platform/

# The tables and charts in the pages, from registries and benchmarks/results; a test fails if one is not current.
docs-tables: $(INSTALLED)
	$(BIN)/python docs/generate/pages.py

# The documentation site in build/site; a warning, such as a broken link, is an error.
DOCS_INSTALLED := $(VENV)/.installed-docs
docs: $(DOCS_INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Documentation: build/site/index.html. Its search needs a server: python3 -m http.server --directory build/site"

$(DOCS_INSTALLED): $(INSTALLED)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable '.[docs]'
	@touch $@

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	$(BIN)/python benchmarks/proxy_scoring.py

# Writes the installed versions, which passed all tests, to constraints.txt; torch pins its CUDA packages itself.
constraints: $(INSTALLED)
	@mkdir -p build
	sed '/^[^#]/d' constraints.txt > build/constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable | grep -v -E '^(nvidia-|cuda-|#)' >> build/constraints.txt
	mv build/constraints.txt constraints.txt

# Wheel and sdist in dist/, built without network from a copy of the tracked files: setuptools would leave build/lib in the
# checkout, and use it for the next build. twine checks them too if it is installed.
dist: $(INSTALLED)
	rm -rf dist build/dist-source && mkdir -p build/dist-source
	git ls-files -z --cached | tar --create --null --files-from=- | tar --extract --directory=build/dist-source
	$(BIN)/python -m build --no-isolation --outdir dist build/dist-source
	$(BIN)/python .ci/check_dist.py dist
	if $(BIN)/python -c 'import twine' 2>/dev/null; then $(BIN)/python -m twine check --strict dist/*; fi

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
