# The commands of this repository. `make` lists them.
.PHONY: help build programs setup demo test test-full bench-relay bench-hooks fuzz

# Always the same packages together: another set has other features of shared dependencies and builds them anew.
PROGRAMS = cargo build --locked --release -p koord-runtime-proxy -p koordctl -p koord-testing -p koord-perf -p koord-plugin-example

help:
	@echo 'make demo         run pods through the proxy and show asked, sent and found values'
	@echo 'make test         all tests that fit in half an hour with warm caches'
	@echo 'make test-full    all tests: every critest mode, both kubelets, virtual machine, fuzzing, soak'
	@echo 'make bench-relay  latency, CPU time and memory of the relay beside other relays'
	@echo 'make bench-hooks  what rules, hook plugins and a hook server add to a held call'
	@echo 'make setup        install and build what the tests need, nothing else'
	@echo 'make build        release build of the proxy and koordctl'
	@echo 'make fuzz         fuzz each target for FUZZ_SECONDS (600)'

build:
	cargo build --locked --release -p koord-runtime-proxy -p koordctl

# What tests, demonstration and benchmarks run.
programs:
	@$(PROGRAMS)

setup:
	tests/setup test

demo:
	@tests/setup demo
	@$(PROGRAMS)
	@tests/demo

test:
	@tests/setup packages
	@tests/suite test

test-full:
	@tests/setup packages
	@tests/suite full

bench-relay:
	$(PROGRAMS)
	tests/perf/run

bench-hooks:
	$(PROGRAMS)
	target/release/relay-bench hooks

fuzz:
	@tests/setup full
	tests/fuzz run
