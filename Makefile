# The commands of this repository. `make` lists them.
.PHONY: help build programs packages packages-check setup demo test test-full bench-relay bench-hooks bench-usage fuzz

# Always the same packages together: another set has other features of shared dependencies and builds them anew.
PROGRAMS = cargo build --locked --release -p koord-runtime-proxy -p koordctl -p koordlet -p koord-testing -p koord-perf -p koord-plugin-example

help:
	@echo 'make demo         run pods through the proxy and show asked, sent and found values'
	@echo 'make test         all tests that fit in half an hour with warm caches'
	@echo 'make test-full    all tests: every critest mode, both kubelets, virtual machine, fuzzing, soak; hours (RESUME=1: without steps that passed on this commit)'
	@echo 'make bench-relay  latency, CPU time and memory of the relay beside other relays'
	@echo 'make bench-hooks  what rules, hook plugins and a hook server add to a held call'
	@echo 'make bench-usage  CPU time and memory of sampling beside a naive collector'
	@echo 'make setup        install and build what the tests need, nothing else'
	@echo 'make build        release build of the proxy and koordctl'
	@echo 'make packages     koord-node and koordlet as .deb and .rpm in target/packages (KOORD_VERSION_SUFFIX=+1: a higher version)'
	@echo 'make packages-check  build the packages twice, in two folders, and compare them'
	@echo 'make fuzz         fuzz each target for FUZZ_SECONDS (600)'

build:
	cargo build --locked --release -p koord-runtime-proxy -p koordctl

# What tests, demonstration and benchmarks run.
programs:
	@$(PROGRAMS)

packages:
	@tests/setup release
	@packaging/build --version-suffix '$(KOORD_VERSION_SUFFIX)'

packages-check:
	@tests/setup release
	@tests/packages/reproducible

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
	@tests/suite full $(if $(RESUME),--resume)

bench-relay:
	$(PROGRAMS)
	tests/perf/run

bench-hooks:
	$(PROGRAMS)
	target/release/relay-bench hooks

bench-usage:
	$(PROGRAMS)
	target/release/relay-bench usage

fuzz:
	@tests/setup full
	tests/fuzz run
