# The same commands for people, CI and README. `make` alone prints them.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: openapi-check help setup clients clients-types clients-check run test test-fast test-llamacpp torture check format bench walk openapi docs golden models lock
.PHONY: console-check console-pictures gateway-test upgrade-test image image-test
.PHONY: audit notices sbom release clean

BIN := .venv/bin
LLAMACPP := .venv-llamacpp
LLAMACPP_CMAKE := -DGGML_NATIVE=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAVA_BUILD=OFF
RUNNABLE := .venv/.runnable
READY := .venv/.ready
RELEASE := .venv-release
CLIENTS := .clients/.ready
CLIENT_LOCKS := $(wildcard tests/journeys/pypi/*.lock tests/journeys/npm/*/package-lock.json clients/typescript/package-lock.json)
CODE := app bench release tests
unexport PYTHONDONTWRITEBYTECODE  # tests start the service hundreds of times, which would compile it each time
PYTEST := $(BIN)/pytest --numprocesses 2 --dist worksteal
CHECKS := tests/architecture tests/counts tests/test_documentation.py tests/test_image.py
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
FAST := tests/adapters tests/capabilities tests/conformance tests/domain tests/orchestration tests/support tests/test_settings.py
CONSOLE := app/portico/entrypoints/http/console
NODE := { command -v npx > /dev/null || { echo 'There is no Node here, so nothing was done.' >&2; false; }; }
USABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
EXTRA_NAMES := aws azure code google otlp-grpc
EXTRA_LOCKS := $(EXTRA_NAMES:%=requirements-%.lock)
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--constraint constraints.txt --custom-compile-command 'make lock'

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## Make .venv from the hashed locks, with the tools for tests

$(RUNNABLE): requirements.lock requirements-build.lock pyproject.toml
	@for python in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3; do \
		if $$python -c '$(USABLE)' 2>/dev/null; then echo "$$python -m venv .venv"; exec $$python -m venv .venv; fi; \
	done; echo 'No usable Python here: 3.11 or newer is needed, with venv and pip.' >&2; exit 1
	$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements.lock --requirement requirements-build.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(READY): $(RUNNABLE) requirements-dev.lock $(EXTRA_LOCKS)
	$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements-dev.lock $(addprefix --requirement ,$(EXTRA_LOCKS))
	@touch $@

run: $(RUNNABLE) ## Serve on http://127.0.0.1:8080
	$(BIN)/portico serve

test: check ## Run `make check`, then all other tests, with the clients that can be installed here; minutes
	@$(MAKE) --no-print-directory clients || echo 'Not all clients could be installed here; the tests of the others are skipped.'
	$(PYTEST) $(addprefix --ignore=,$(CHECKS))

test-fast: setup ## Run the unit tests, and the conformance tests on SQLite only; a minute
	$(PYTEST) -m 'not torture and not postgres' $(FAST)

test-llamacpp: $(LLAMACPP)/.ready ## Build llama.cpp once, which takes minutes, then test the engine on it
	$(LLAMACPP)/bin/pytest tests/llamacpp

clients: $(CLIENTS) ## Install the clients and servers from npm and PyPI that journeys run; those from npm need it

$(CLIENTS): $(RUNNABLE) $(CLIENT_LOCKS)
	@for each in git_server pydantic_ai; do \
		$(BIN)/python -m venv .clients/$$each && .clients/$$each/bin/pip install --quiet --no-deps --require-hashes \
			--requirement tests/journeys/pypi/$$each.lock || exit; \
	done
	@for each in sdks claude_code codex mcp_servers conformance copilotkit checkers; do \
		cp -r tests/journeys/npm/$$each .clients/; \
		npm ci --prefix .clients/$$each --ignore-scripts --no-audit --no-fund --loglevel error || exit; \
	done
	@mkdir -p .clients/typescript && cp clients/typescript/package*.json .clients/typescript/
	@npm ci --prefix .clients/typescript --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

clients-types: setup ## Write the types of both client packages from openapi/openapi.json, which needs Node for TypeScript, and the blocking Python client
	$(BIN)/python -m tests.support.client_types
	$(BIN)/python -m tests.support.client_sync
	@if $(NODE); then npx --yes openapi-typescript@7.13.0 openapi/openapi.json --output clients/typescript/src/api.ts; fi

clients-check: setup ## Check the Python client package, and play the tests of both packages
	$(BIN)/ruff format --check clients
	$(BIN)/ruff check clients
	$(BIN)/mypy clients/python/portico_client
	$(PYTEST) tests/clients

torture: setup ## Run randomised tests with all seeds and a new one, which TORTURE_SEED repeats; takes long
	@seed=$${TORTURE_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	echo "TORTURE_SEED=$$seed"; TORTURE_SEED=$$seed $(PYTEST) -m 'torture or seeded' --timeout 1800

$(LLAMACPP)/.ready: $(READY) requirements-llamacpp.lock
	$(BIN)/python -m venv $(LLAMACPP)
	CMAKE_ARGS="$(LLAMACPP_CMAKE)" $(LLAMACPP)/bin/pip install --quiet --no-deps --require-hashes --requirement requirements-llamacpp.lock
	$(LLAMACPP)/bin/pip install --quiet --no-deps --require-hashes --requirement requirements-build.lock
	$(LLAMACPP)/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

check: setup ## Format, lint, types, import rules, architecture, names, calls, drift of API description and pages
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) $(CHECKS)
	$(BIN)/portico openapi | diff -u openapi/openapi.json -

format: setup ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: setup ## Measure against the bounds; a table, and bench/results/latest.json
	$(BIN)/python -m bench

walk: setup ## Print the way of one chat through the code, and how often it changes file
	$(BIN)/python -m bench.walk

openapi: setup ## Write openapi/openapi.json from the code
	$(BIN)/portico openapi > openapi/openapi.json

openapi-check: $(RELEASE)/.ready ## Check the API description against the last release and with two generators, one of which needs Node
	$(BIN)/python -m tests.support.released_api
	$(BIN)/openapi-spec-validator openapi/openapi.json
	@mkdir -p build
	@PATH=$(CURDIR)/$(RELEASE)/bin:$$PATH openapi-python-client generate --overwrite --fail-on-warning --meta none \
		--path openapi/openapi.json --output-path build/api_client
	@if $(NODE); then \
		npx --yes openapi-typescript@7.13.0 openapi/openapi.json --output build/api.d.ts && cp tests/support/typical_uses.ts build/ && \
		for version in 5.9.3 7.0.2; do \
			npx --yes --package typescript@$$version tsc --strict --noEmit --lib es2022 build/typical_uses.ts || exit; \
		done; \
	fi

console-check: ## Check the types of the console's modules; needs Node
	@if $(NODE); then npx --yes --package typescript@5.9.3 tsc --project $(CONSOLE)/tsconfig.json; fi

console-pictures: setup ## Write the pictures of docs/console.md from the rehearsal engine; needs Chromium
	$(BIN)/python -m tests.console.pictures

docs: setup ## Write the generated parts and the answers of README.md and docs/ from the code
	$(BIN)/python -m tests.support.documentation --write

golden: setup ## Write the stored records and executions of tests/golden anew from the code
	$(BIN)/python -m tests.support.stored_format
	$(BIN)/python -m tests.support.golden_journals

models: setup ## Write the table of known models and their prices from the package genai-prices
	$(BIN)/python -m tests.support.known_models

lock: setup ## Resolve the dependencies anew into the hashed locks
	$(LOCK) --group build --output-file requirements-build.lock
	$(LOCK) --group release --output-file requirements-release.lock
	$(LOCK) pyproject.toml --output-file requirements.lock
	$(LOCK) pyproject.toml --extra dev --constraint requirements.lock --output-file requirements-dev.lock
	$(LOCK) pyproject.toml --extra dev --extra llamacpp --extra llamacpp-dev --constraint requirements-dev.lock \
		--output-file requirements-llamacpp.lock
	for extra in $(EXTRA_NAMES); do \
		$(LOCK) pyproject.toml --extra $$extra --constraint requirements-dev.lock --output-file requirements-$$extra.lock || exit; \
	done

gateway-test: setup ## Restart and kill replicas behind each gateway that is installed; minutes
	$(BIN)/python -m bench.gateway

$(RELEASE)/.ready: $(READY) requirements-release.lock
	$(BIN)/python -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --no-deps --require-hashes --requirement requirements-release.lock
	@touch $@

audit: $(RELEASE)/.ready ## Ask for known vulnerabilities of the locked packages; ends with 3 if one could not be checked
	$(BIN)/python -m release.audit

notices: setup ## Write THIRD_PARTY_NOTICES from the licences of the installed packages
	$(BIN)/python -m release.notices

sbom: $(RELEASE)/.ready ## Write dist/portico-VERSION.cdx.json: packages, versions, licences; IMAGE_ROOT=DIR adds Debian's
	$(BIN)/python -m release.sbom $(IMAGE_ROOT)

release: $(RELEASE)/.ready ## Write wheel, sdist, bill of materials and SHA256SUMS of the last commit into dist/
	$(BIN)/python -m release.archives

upgrade-test: setup ## Replace replicas of FROM=REF, else of the newest tag, by those of the checkout and back; minutes
	$(BIN)/python -m bench.upgrade $(FROM)

image: ## Build the container image with Docker, Podman or buildah; EXTRAS=otlp-grpc,… adds extras
	@for program in docker podman buildah; do \
		if command -v $$program > /dev/null; then break; fi; \
	done; \
	case $$program in docker) build='docker build' ;; *) build="$$program build --format docker" ;; esac; \
	exec $$build --tag portico --build-arg EXTRAS=$(EXTRAS) --build-arg VERSION=$(VERSION) \
		--build-arg REVISION=$$(git rev-parse --short HEAD) --build-arg CREATED=$$(git log -1 --format=%cI) .

image-test: $(RELEASE)/.ready ## Build the image on Debian's packages with buildah and run it with runc, as root; minutes
	$(BIN)/python -m release.image $(FAST)

clean: ## Remove everything that was made
	rm -rf .venv $(LLAMACPP) $(RELEASE) build dist bench/results .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
