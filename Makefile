# SPDX-License-Identifier: Apache-2.0
# Meson does the work. `make demo` and `make check` install the packages that they need with apt.
BUILD ?= build
DEVICE ?=
PYTHON = /usr/bin/python3
# what programs print is UTF-8, whatever the locale here is
export PYTHONUTF8 = 1

.PHONY: build setup demo check attack format bench table install deb clean
build:
	tools/setup.sh build
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD)
	ninja -C $(BUILD)

setup:
	tools/setup.sh check

# Trains a small network here, sweeps a simulated node, leaves demo.html. DEVICE=sim:h200x4|nvml sweeps that. Compiles what
# it runs: kernels for NVIDIA's GPUs only where their driver is loaded; `make` compiles the rest.
demo:
	tools/setup.sh demo
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD)
	ninja -C $(BUILD) $(if $(wildcard /proc/driver/nvidia/version),demo-with-gpus,demo)
	tools/demo.sh $(BUILD)/joulemark $(DEVICE)

# Every check there is; ends with "N passed, N failed". One step again: make check STEPS="lint tidy"
check: setup
	$(PYTHON) tools/check.py $(STEPS)

# Random attacks, each compared with the truth; a failed round says how to repeat it. An hour: make attack SECONDS=3600
SECONDS ?= 600
SEED ?=
SUITES ?=
attack: build
	JM_BUILD=$(BUILD) tests/isolate.sh $(PYTHON) tests/attack/attack.py --seconds $(SECONDS) \
		$(if $(SEED),--seed $(SEED)) $(foreach suite,$(SUITES),--suite $(suite))

format:
	find . -path './build*' -prune -o -name '*.[ch]' -print | xargs clang-format -i

bench: build
	tools/bench.sh $(BUILD) $(NAME)

# docs/speed.md from one run: half an hour on a machine that does nothing else. ARGS="--models resnet18"
table: setup
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD)
	ninja -C $(BUILD)
	JM_BUILD=$(BUILD) $(PYTHON) bench/table.py $(ARGS)

# kernels for all GPUs, also where .ci/run has configured the folder
install: build
	meson configure $(BUILD) -Dgpu_arch=all
	meson install -C $(BUILD)

# build/joulemark_VERSION_ARCH.deb, from what is built; DEBFULLNAME and DEBEMAIL name its maintainer
deb: build
	meson configure $(BUILD) -Dgpu_arch=all
	ninja -C $(BUILD)
	$(PYTHON) tools/deb.py $(BUILD)

clean:
	rm -rf $(BUILD) $(BUILD)-* demo.html demo.db*
