# make demo          stock Keras and flatout side by side, on jax; needs nothing but Python 3.11 and pip
# make check         format, lint, types and the fast tests, on jax: before every commit
# make test          all our tests and Keras' own trainer and callback tests, on all three backends
# make keras-suite   Keras' tests of trainers, callbacks and models, on all three backends
# make keras-versions  parity tests and Keras' own tests of trainers, on each minor version of Keras that is supported
# make scripts       whole scripts, plain and under flatout, on all three backends; FOLDER=path for your own
# make test-cluster  all cases of several processes, on all three backends, with Ray
# make bench         the six models of `flatout bench`, on all three backends
PYTHON ?= python3
BACKENDS ?= jax tensorflow torch
VENV := .venv
PY := $(VENV)/bin/python
# Two workers fill two cores; more would only compete for them.
WORKERS ?= 2
FOLDER ?= examples/scripts
# Tests that show the same on each backend run on one of them: `make unit TURNS=` runs all on all.
TURNS ?= $(if $(word 3,$(BACKENDS)),1)
# Each worker has a row of files, whose tests compile the same programs, and takes some from the other at the end.
PYTEST := $(PY) -m pytest -q -n $(WORKERS) --dist worksteal
# Without most optimizations, what compiles the fused loops takes two thirds of the time.
CHEAP_XLA := XLA_FLAGS="$(XLA_FLAGS) --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
  --xla_cpu_use_fusion_emitters=false"
CHEAP_JAX := JAX_DISABLE_MOST_OPTIMIZATIONS=1 JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.pytest_cache/d/jax \
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1
# A model that asks for torch.compile is left to stock Keras, and it took most of the time to compile those.
CHEAP_TORCH := TORCHDYNAMO_DISABLE=1
KERAS_TESTS := keras.src.trainers.trainer_test keras.src.callbacks
# With data adapters and the like, which call none of what flatout accelerates, and what it leaves to stock Keras.
KERAS_SUITE := keras.src.trainers keras.src.callbacks keras.src.models

export TF_CPP_MIN_LOG_LEVEL := 3
# Whatever the user's shell says: hundreds of processes would compile the same files, each for itself.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPATH := $(CURDIR)/src$(if $(PYTHONPATH),:$(PYTHONPATH))

.PHONY: venv demo test lint unit keras-tests keras-suite keras-versions test-cluster check format bench scripts clean
.DELETE_ON_ERROR:

venv: $(VENV)/.complete

# Without compiling what is installed: most of it is never imported.
$(VENV)/.complete: pyproject.toml requirements/pins.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "flatout needs Python 3.11 or later: make venv PYTHON=/path/to/python3.11"; exit 1; }
	[ -x $(PY) ] || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --no-compile -c requirements/pins.txt -e '.[jax,tensorflow,torch,dev]'
	@touch $@

demo:
	@python=$$(requirements/demo-python) && KERAS_BACKEND=$${KERAS_BACKEND:-jax} $$python -m flatout demo

test: lint unit keras-tests

lint: venv
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

unit: venv
	@set -e; for backend in $(BACKENDS); do echo "== tests on $$backend"; \
	  KERAS_BACKEND=$$backend TURNS=$(TURNS) $(PYTEST) tests; done

# run-keras-tests PACKAGES EXPRESSION: every backend in its own process; all of them run even if the first one fails.
# Their tolerances are far above what XLA's optimizations change, so it goes without them, and jax keeps what it
# compiled. Some of them wait, hence one more worker. EXPRESSION chooses among them where steps are compiled.
define run-keras-tests
	@failed=; for backend in $(BACKENDS); do echo "== Keras' own tests on $$backend, accelerated"; \
	  KERAS_BACKEND=$$backend FLATOUT_FORCE=1 $(CHEAP_XLA) $(CHEAP_JAX) $(CHEAP_TORCH) \
	  PYTHONPATH=$(CURDIR)/tests:$$PYTHONPATH $(PYTEST) -n $$(($(WORKERS) + 1)) -p fewer_collections \
	  -p flatout.runner.pytest_plugin --pyargs $(1) -k "$$([ $$backend = torch ] || echo '$(2)')" \
	  || failed="$$failed $$backend"; done; \
	[ -z "$$failed" ] || { echo "Keras' own tests failed on$$failed"; exit 1; }
endef

keras-tests: venv
	$(call run-keras-tests,$(KERAS_TESTS),not(eager))

keras-suite: venv
	$(call run-keras-tests,$(KERAS_SUITE))

# A checkout of Keras' main branch as well: make keras-versions KERAS_VERSIONS="3.12 3.15 /path/to/keras"
keras-versions: venv
	$(PY) tests/keras_versions.py $(KERAS_VERSIONS) --backends $(BACKENDS) --workers $(WORKERS)

# One worker: each test has processes of its own.
test-cluster: venv
	@set -e; for backend in $(BACKENDS); do echo "== several processes on $$backend"; \
	  KERAS_BACKEND=$$backend $(PY) -m pytest -q -m cluster tests/cluster; done

check: lint
	KERAS_BACKEND=jax TURNS=1 $(PYTEST) -m "not slow" tests

format: venv
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: venv
	$(PY) -m flatout bench --backends $$(echo $(BACKENDS) | tr ' ' ,) --json bench.json

scripts: venv
	$(PY) benchmarks/script_runner $(FOLDER) --backends $$(echo $(BACKENDS) | tr ' ' ,) --second --repeats 3 --json scripts.json

clean:
	rm -rf $(VENV) .venv-gpu demo bench.json scripts.json .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +
