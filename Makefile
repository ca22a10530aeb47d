# make run: install what is needed, build, answer a prompt.   make test: install, build, pass the tests.
BUILD ?= build
.PHONY: build
build:
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD)
