# The two commands that matter: `make demo` and `make test`. Both prepare the machine first (deploy/setup.sh).
.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO ?= cargo
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help setup demo test check fmt clippy doc deny deploy-check bench bench-proxy bench-audit bench-smoke fuzz-sql fuzz-audit release

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: ## install what building and testing need, and only what is missing
	@deploy/setup.sh test

demo: ## a throw-away PostgreSQL, the proxy in front of it, a workload, and what was witnessed
	@deploy/setup.sh demo
	$(CARGO) run --bin pgassay -- demo $(ARGS)

test: setup deploy-check ## everything that CI runs
	$(CARGO) test --workspace $(ARGS)

check: fmt clippy test doc deny ## what a change must pass: fmt, clippy, test, doc, deny

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

deny:
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check; else echo "cargo-deny is not installed: skipped (cargo install cargo-deny)"; fi

deploy-check: ## validate alerts, dashboards, manifests, units and scripts
	@if [ -x deploy/validate.sh ]; then deploy/validate.sh; fi

bench: ## all benchmarks, about 40 minutes, to tests/bench/RESULTS.md (ARGS="--only growth --generated 7"; ARGS="--help")
	@deploy/setup.sh test
	$(CARGO) build --release --bin pgassay --bin bare-relay --bin bench-audit
	$(CARGO) run --release -p pgassay-tests --bin bench-audit -- $(ARGS)

bench-proxy: ## of them, pgbench through direct, HAProxy, PgBouncer, a bare relay and pgassay
	$(MAKE) bench ARGS="--only proxy $(ARGS)"

bench-audit: ## of them, what the audit costs and covers, the paper's tables, growth, ambiguity
	$(MAKE) bench ARGS="--only coverage,ratio,procedures,paper,figure8,growth,ambiguity $(ARGS)"

bench-smoke: ## the benchmarks, so short that only their working is shown
	$(CARGO) build --bin pgassay --bin bare-relay --bin bench-audit
	$(CARGO) run -p pgassay-tests --bin bench-audit -- --smoke --workloads bank,tpcc $(ARGS)

FUZZ_SECONDS ?= 60
fuzz-sql: ## random statements, expressions, changes of the catalog and interleavings: the interpreter against the real server (FUZZ_SECONDS=60, FUZZ_SEED=n)
	@deploy/setup.sh demo
	PGASSAY_FUZZ_SECONDS=$(FUZZ_SECONDS) PGASSAY_INTERLEAVE_SECONDS=$(FUZZ_SECONDS) $(if $(FUZZ_SEED),PGASSAY_FUZZ_SEED=$(FUZZ_SEED) PGASSAY_INTERLEAVE_SEED=$(FUZZ_SEED)) \
		$(CARGO) test -p pgassay-tests --test fuzz_sql --test fuzz_ddl --test fuzz_values --test interleavings -- --nocapture

FUZZ_CASES ?= 100000
fuzz-audit: ## random histories, of which the audit must say what the reference checker says, or less (FUZZ_CASES=100000, FUZZ_SEED=n)
	@deploy/setup.sh build
	PGASSAY_PROPTEST_SEED=$${FUZZ_SEED:-$$(date +%s)} PGASSAY_FORGOTTEN_CASES=$(FUZZ_CASES) PGASSAY_PROPTEST_CASES=$$(($(FUZZ_CASES) / 20)) \
		$(CARGO) test --release -p pgassay-audit --test agreement -- --nocapture --test-threads 1

release: ## the optimised binary, with completions and man page beside it
	@deploy/setup.sh demo
	$(CARGO) build --release --bin pgassay
	mkdir -p target/release/completions
	target/release/pgassay man >target/release/pgassay.1
	for shell in bash zsh fish; do target/release/pgassay completions $$shell >target/release/completions/pgassay.$$shell; done
