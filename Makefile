# SPDX-License-Identifier: MPL-2.0

.DEFAULT_GOAL := help
.NOTPARALLEL:
# All names are commands, and none a file.
.PHONY: $(shell sed -n 's/^\([a-z][a-z -]*\):.*/\1/p' Makefile)

# Packages of PyPI for the tests and the demo: ffmpeg with libvmaf, and a film.
PYTHON := target/python/bin/python
PACKAGES := target/python/ready
# Packages for the tests of archives on clusters.
ENGINES := target/engines/ready
ENGINES_LIST := tests/tools/requirements-engines.txt

# Kernels are compiled for the GPUs of this machine unless GPUS says `all`, `none`, or a list of GPUs (gfx1100,sm_90), here, in
# the environment of cargo, or as an option of meson. The tests need code for those that the software device stands for.
TEST_GPUS := native,gfx1100,gfx11-generic,gfx90a,gfx1030,gfx1036,gfx10-3-generic,sm_75
WITH_TEST_GPUS := test lint doc unit tests soak stress program swhip-check kernels check-kernels kernel-table interop \
	check-libvmaf check-libvmaf-where-possible
$(WITH_TEST_GPUS): export GPUS ?= $(TEST_GPUS)
packages check-packages: export GPUS := all
# GPUs that check-kernels compiles for: one of each family, because all take minutes. KERNELS=all is for changes of kernels.
check-kernels: KERNELS ?= $(TEST_GPUS),gfx942,gfx1200,sm_80

# The tests run a plugin that is built with their profile, in a folder of its own.
export PROFILE := release
RELEASE = $(if $(filter release,$(PROFILE)),--release)
export PLUGINS := target/plugins
# A release build has the plugin and the program only. The tests also need examples and tools, which enable more features of
# the dependencies; so everything is built together, and no crate is compiled twice.
WHOLE := --workspace --example embed --bin hipvmaf
export BUILD = $(if $(RELEASE),--package gst-plugin-hipvmaf --package hipvmaf-cli --bin hipvmaf,$(WHOLE))
test: PROFILE := debug
test: PLUGINS := target/test-plugins
# The soak in `make test`, in seconds; memory is judged in longer ones.
test: export DURATION ?= 90
# It compiles all there is, once; what compilers keep for the next time takes a quarter longer.
test: export CARGO_INCREMENTAL := 0

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

man: bootstrap ## write man pages and shell completions into target/generated
	cargo run --locked $(RELEASE) --package hipvmaf-cli -- generate target/generated

site: ## make a site of README.md and docs/ in target/site, with mdBook
	@scripts/site

# The demo runs `score`, and is built with little else. Once the plugin is there, the whole program stays whole.
demo: $(if $(wildcard $(PLUGINS)/libgsthipvmaf.so),plugin,score) $(PACKAGES) ## score an encoding of a real film; leaves results and a report in target/demo
	@scripts/demo
	@scripts/built

score: bootstrap
	cargo build --locked --package hipvmaf-cli --bin hipvmaf --no-default-features $(RELEASE)

# There are three lanes: tests that wait for time to pass, the unit tests, and steps that only compute. Each lane has a lower
# priority than those before it, so that tests with timeouts run when they are due.
WAITING := soak walk check-report-where-possible check-monitor-where-possible check-prometheus-where-possible
COMPUTING := swhip-check check-crates check-kernels meson-check check-libvmaf-where-possible check-libvmaf-clients-where-possible
STEPS := bootstrap-tests fmt-check check-links lint doc tests
test: ## everything that a change must pass; the seconds that each part takes are printed at the end
	@MAKE="$(MAKE)" scripts/lanes "$(STEPS)" "$(WAITING)" "$(COMPUTING)" unit

# Slow steps, and steps that download a Debian or other services, in addition to `make test`.
test-all: ## also what is to pass before a release: other systems, clusters, kernels for all GPUs, hours of use; as root
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory check-kernels KERNELS=all
	@$(MAKE) --no-print-directory interop check-packages check-arm64 check-slurm check-ray check-kubernetes check-archive
	@$(MAKE) --no-print-directory soak DURATION=1800
	@$(MAKE) --no-print-directory stress DURATION=1800
	@$(MAKE) --no-print-directory soak-monitor
	scripts/fuzz-files 600

tests: plugin swhip $(PACKAGES)
	cargo test --locked --workspace --no-run

bench: plugin $(PACKAGES) ## compare the speed with ffmpeg's libvmaf, on raw 1080p video; MODEL=name for another model, BITS=10
	@$(PYTHON) scripts/bench $(or $(MODEL),vmaf_v0.6.1) $(BITS)

plugin: bootstrap ## build the plugin into target/plugins, and the program as target/release/hipvmaf; GPUS=all for all GPUs
	cargo build --locked --lib $(BUILD) $(RELEASE)
	install -C -D -t $(PLUGINS) target/$(PROFILE)/libgsthipvmaf.so
	@$(if $(RELEASE),scripts/built)

libvmaf: bootstrap ## build a library with libvmaf's interface, and its headers, into target/libvmaf
	cargo build --locked --lib $(if $(RELEASE),--package hipvmaf-libvmaf,$(WHOLE)) $(RELEASE)
	install -C -D target/$(PROFILE)/libvmaf.so target/libvmaf/libvmaf.so.3.2.0
	ln -sfn libvmaf.so.3.2.0 target/libvmaf/libvmaf.so.3
	ln -sfn libvmaf.so.3 target/libvmaf/libvmaf.so
	install -C -m 644 -t target/libvmaf target/$(PROFILE)/libvmaf.a crates/libvmaf/libvmaf.pc
	install -C -D -m 644 -t target/libvmaf/include/libvmaf crates/libvmaf/include/libvmaf/*.h

check-libvmaf-where-possible: swhip libvmaf
	@scripts/check-libvmaf || [ $$? = 77 ]

check-libvmaf: swhip libvmaf ## compare that library with Netflix's, which is built from its sources: reports, scores, interface
	@scripts/check-libvmaf

check-libvmaf-clients-where-possible: libvmaf
	@scripts/check-libvmaf-clients || [ $$? = 77 ]

check-libvmaf-clients: libvmaf ## the same for ffmpeg's filter and GStreamer's element, which are built from Debian's sources
	@scripts/check-libvmaf-clients

PREFIX := /usr/local
install: plugin ## install program and plugin without their symbols, below PREFIX (/usr/local) and where GStreamer has its plugins
	install -D -s target/$(PROFILE)/hipvmaf $(DESTDIR)$(PREFIX)/bin/hipvmaf
	install -D -s -m 644 $(PLUGINS)/libgsthipvmaf.so \
		$(DESTDIR)$$(pkg-config --variable=pluginsdir gstreamer-1.0)/libgsthipvmaf.so

fmt: ## format the code
	cargo fmt --all

fmt-check: bootstrap
	cargo fmt --all --check

check-links: ## look whether all files and headings are there that pages link to
	@scripts/check-links

lint: bootstrap ## warnings are errors
	@scripts/check-words
# Programs of tests without a harness list their functions; the attribute would leave one out without a word.
	@! git grep -n '#\[test\]' -- tests/pipeline crates/engine/tests/backends crates/hip-sys/tests/cuda.rs crates/libvmaf/tests/gpu crates/libvmaf/tests/gpu.rs
	cargo clippy --locked --workspace --all-targets -- -D warnings

doc: bootstrap ## build the documentation of the library
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

unit: export HIPVMAF_REQUIRE_HIP_HEADERS := 1
unit: export HIPVMAF_PYTHON := $(abspath $(PYTHON))
unit: $(PACKAGES) bootstrap-tests swhip ## the tests alone
	cargo test --locked --workspace --no-fail-fast

walk: plugin $(PACKAGES) bootstrap-tests ## run the commands of README.md and docs/, as printed
	cargo build --locked $(WHOLE) $(RELEASE)
	@scripts/walk

meson-check: bootstrap ## build and install with meson, as packagers do
	scripts/meson-check $(PROFILE)

# Kernels for the GPUs of KERNELS, else for all, in target/kernels.
kernels: bootstrap-tests
	@cargo build --locked --quiet $(WHOLE) --bin compile-kernels
	target/debug/compile-kernels target/kernels $(or $(KERNELS),all)

check-kernels: kernels ## compile the kernels for a GPU of each family, or for KERNELS=all, check the code for AMD's, and that hipcc takes the sources
	@scripts/kernel-report check
	@scripts/hipcc-check

kernel-table: kernels ## write what each kernel takes on AMD GPUs into bench/records
	@scripts/kernel-report update

swhip: bootstrap-tests ## build the software devices into target/swhip
	@$(MAKE) --no-print-directory -j$$(nproc) -C tests/swhip

swhip-check: bootstrap-tests ## run every kernel on it under sanitizers and a race checker
	@tests/swhip/check

interop: bootstrap-all plugin swhip ## run with a newer GStreamer and its HIP elements, in a Debian root; as root
	@scripts/interop

soak: bootstrap-tests ## run live with losses, restarts and new sizes for DURATION seconds, then seek a thousand times
	cargo build --locked $(WHOLE) --bin soak
	target/debug/soak --duration $(or $(DURATION),180)

soak-monitor: plugin $(PACKAGES) ## have the monitor watch eight channels through kills, reloads and stalled clients for MINUTES (30)
	scripts/soak-monitor $(MINUTES)

stress: bootstrap-tests ## let anything happen to elements in any order for DURATION seconds; SEED=n for other choices
	HIPVMAF_STRESS_SECONDS=$(or $(DURATION),600) HIPVMAF_STRESS_SEED=$(or $(SEED),1) \
		cargo test --locked --test stress -- --nocapture

# target/debug/hipvmaf, which the following run.
program: bootstrap-tests
	@cargo build --locked --quiet $(WHOLE)

check-report-where-possible: program
	@scripts/check-report || [ $$? = 77 ]

check-report: program ## write the report of a ladder and look at it in Chromium
	@scripts/check-report

check-monitor-where-possible: program
	@scripts/check-monitor || [ $$? = 77 ]

check-monitor: program ## run the monitor and look at its page in Chromium
	@scripts/check-monitor

check-prometheus-where-possible: program
	@scripts/check-prometheus || [ $$? = 77 ]

check-prometheus: program ## have Prometheus scrape the monitor, and raise its alerts
	@scripts/check-prometheus

packages: bootstrap-packages plugin ## make a .deb, a tarball, a bill of materials and checksums in target/packages
	@scripts/packages target/packages

source-packages: bootstrap-packages ## make a Debian source package, an RPM spec and a conda recipe in target/source-packages
	@scripts/source-packages target/source-packages

check-packages: bootstrap-all plugin ## make packages, and install, use and remove them in a Debian root; as root
	@scripts/check-packages

check-arm64: bootstrap-all program ## build program and plugin for arm64, and run them and the engine's unit tests in qemu
	@scripts/check-arm64

check-crates: bootstrap ## pack the crates, and compile what is in the packages
	@scripts/check-crates

check-slurm: bootstrap-all program ## have Slurm score an archive on two nodes, and lose one of them
	@scripts/check-slurm

check-ray: program $(ENGINES) ## have Ray score an archive on two raylets, and lose one of them
	@scripts/check-ray

check-kubernetes: program $(ENGINES) ## check the manifests with the schema of Kubernetes, and run what the pods run
	@scripts/check-kubernetes

check-archive: $(PACKAGES) ## score fifty titles in chunks, kill some of what scores, compare with whole titles; minutes
	@scripts/check-archive

clean: ## remove everything that was built or fetched
	rm -rf target

bootstrap:
	@scripts/bootstrap

bootstrap-packages:
	@scripts/bootstrap packages

bootstrap-tests:
	@scripts/bootstrap tests

bootstrap-all:
	@scripts/bootstrap all

$(PACKAGES): tests/tools/requirements.txt | bootstrap
	rm -rf target/python
	python3 -m venv target/python
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-compile -r $<
	touch $@

$(ENGINES): $(ENGINES_LIST) python/pyproject.toml python/hipvmaf_ray.py | bootstrap
	rm -rf target/engines
	python3 -m venv target/engines
	target/engines/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<
	cp -r python target/engines/source
	target/engines/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation target/engines/source
	touch $@
