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

.PHONY: help install demo test test-all test-slow test-avx2 test-lower-bounds test-guides test-bohb test-export test-timm test-adversarial lint docs format bench constraints clean
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

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m "not slow" $(PYTEST_ARGS)

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m "$(SLOW)" $(PYTEST_ARGS)

# What builds networks once more, with oneDNN's kernels for CPUs without AVX-512 (in Ray's workers too), and with a heap
# that glibc checks (from 2.34 on that needs the library; where there is none the loader says so and goes on).
test-avx2: $(INSTALLED)
	ONEDNN_MAX_CPU_ISA=AVX2 MALLOC_CHECK_=3 LD_PRELOAD=libc_malloc_debug.so.0 \
	  $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m "not slow" $(PYTEST_ARGS) \
	  tests/trainables tests/platform/test_supernet_methods.py

# The guides' code that needs more than archray: MLflow, Weights & Biases, TensorBoard, Lightning, timm. It adds 260 MB.
test-guides: $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[guides]'
	$(BIN)/python -m pytest -k "mlflow or wandb or tensorboard or lightning or timm" $(PYTEST_ARGS) \
	  tests/platform/test_page_blocks.py

# What needs hpbandster; it adds 60 MB.
test-bohb: $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[bohb]'
	$(BIN)/python -m pytest -k "bohb" $(PYTEST_ARGS) tests/searchers/test_bohb_search.py tests/platform/test_bohb.py \
	  tests/platform/test_report_plain.py tests/platform/test_resume_plain.py tests/platform/test_whole_runs.py

# What needs onnx, onnxscript and onnxruntime; they add 125 MB.
test-export: $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[export]'
	$(BIN)/python -m pytest -k "onnx" $(PYTEST_ARGS) tests/trainables/test_exported_program.py \
	  tests/platform/test_export_formats.py tests/trainables/test_latency.py tests/platform/test_device_latency.py

# What needs timm; it adds 40 MB.
test-timm: $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[timm]'
	$(BIN)/python -m pytest -k "timm" $(PYTEST_ARGS) tests/trainables/test_nets_timm.py tests/trainables/test_nets.py \
	  tests/platform/test_timm_spaces.py

# What needs the Adversarial Robustness Toolbox; it adds 15 MB.
test-adversarial: $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[adversarial]'
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/trainables/test_adversarial.py tests/platform/test_attack.py

test-all: test test-slow test-avx2 test-guides test-bohb test-export test-timm test-adversarial test-lower-bounds

# The oldest versions that pyproject.toml allows, in an environment of their own, which is removed when it has passed.
test-lower-bounds: $(INSTALLED)
	bash .ci/lower-bounds $(PYTHON)

lint: $(INSTALLED) build/mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	cd build/mypy && $(BIN)/mypy --config-file ../../pyproject.toml -p archray

# mypy cannot follow the mapping of an editable install: here links show it the package as a wheel would lay it out.
.PHONY: build/mypy
build/mypy:
	@rm -rf $@/archray && mkdir -p $@/archray
	@for file in archray/*; do ln -s "$(CURDIR)/$$file" $@/archray/; done
	@for room in $(ROOMS); do ln -s "$(CURDIR)/$$room" $@/archray/; done

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
