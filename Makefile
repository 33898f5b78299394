# The commands of this repository. `make` lists them.
.PHONY: help build setup demo test test-full bench-relay bench-hooks fuzz

help:
	@echo 'make demo         run pods through the proxy and show asked, sent and found values'
	@echo 'make test         all tests that fit in half an hour with warm caches'
	@echo 'make test-full    all tests: every critest mode, both kubelets, virtual machine, fuzzing, soak'
	@echo 'make bench-relay  latency, CPU time and memory of the relay beside other relays'
	@echo 'make bench-hooks  what rules, hook plugins and a hook server add to a held call'
	@echo 'make setup        install and build what the tests need, nothing else'
	@echo 'make build        release build of the proxy'
	@echo 'make fuzz         fuzz each target for FUZZ_SECONDS (600)'

build:
	cargo build --locked --release -p koord-runtime-proxy

setup:
	tests/setup test

demo:
	@tests/setup demo
	@cargo build --locked --release -p koord-runtime-proxy -p koordctl -p koord-plugin-example
	@tests/demo

test:
	@tests/setup packages
	@tests/suite test

test-full:
	@tests/setup packages
	@tests/suite full

bench-relay:
	cargo build --locked --release -p koord-runtime-proxy -p koord-perf --bins
	tests/perf/run

bench-hooks:
	cargo build --locked --release -p koord-runtime-proxy -p koord-perf -p koord-plugin-example
	target/release/relay-bench hooks

fuzz:
	@tests/setup full
	tests/fuzz run
