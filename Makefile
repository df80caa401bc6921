# The thin face of the build; Meson does the work. `make demo` and `make check` do all their set-up.
BUILD ?= build

.PHONY: build
build:
	test -d $(BUILD) || meson setup $(BUILD)
	ninja -C $(BUILD)
