# make run    installs what is needed, builds, and answers a prompt with the bundled model
# make test   installs what is needed, builds, and runs the tests
# `make help` lists the rest. SKIP_DEPS=1 leaves the machine's packages alone.
.DEFAULT_GOAL := help
.PHONY: help deps deps-test build run test test-long asan tsan tidy format install uninstall clean

PREFIX ?= /usr/local
DESTDIR ?=
PROMPT ?= What is a castle?
export PROMPT

# Homebrew keeps OpenSSL out of the default search path.
ifeq ($(shell uname -s),Darwin)
  CMAKE_FLAGS += -DCMAKE_PREFIX_PATH="$(shell brew --prefix 2>/dev/null);$(shell brew --prefix openssl@3 2>/dev/null)"
endif

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps:
ifndef SKIP_DEPS
	@tools/install_deps.sh build
endif

deps-test:
ifndef SKIP_DEPS
	@tools/install_deps.sh test
	@tools/test_clients.sh
endif

build: deps ## installs packages, builds build/lily
	cmake --preset release $(CMAKE_FLAGS)
	cmake --build --preset release --target lily

run: build ## … and answers PROMPT='What is a castle?' with the bundled model
	./build/lily run tiny "$$PROMPT"

test: deps-test ## builds everything, runs the tests, then those of all that reads input again under ASan and UBSan
	cmake --preset release $(CMAKE_FLAGS)
	cmake --build --preset release
	cmake --preset asan $(CMAKE_FLAGS)
	cmake --build --preset asan --target sanitized_core
	tools/run_tests.py release asan

test-long: deps-test ## the tests that take minutes, all of them under ASan and UBSan, the threaded ones under TSan
	cmake --preset release $(CMAKE_FLAGS)
	cmake --build --preset release
	cmake --preset asan-all $(CMAKE_FLAGS)
	cmake --build --preset asan-all --target sanitized_tests
	cmake --preset tsan $(CMAKE_FLAGS)
	cmake --build --preset tsan --target sanitized_tests
	tools/run_tests.py long asan-all long-fuzz tsan

asan: deps-test ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer, in build-asan
	cmake --preset asan-all $(CMAKE_FLAGS)
	cmake --build --preset asan-all --target sanitized_tests
	tools/run_tests.py asan-all

tsan: deps-test ## the threaded tests under ThreadSanitizer, in build-tsan
	cmake --preset tsan $(CMAKE_FLAGS)
	cmake --build --preset tsan --target sanitized_tests
	tools/run_tests.py tsan

tidy: deps ## clang-tidy over src (needs clang-tidy)
	cmake --preset release $(CMAKE_FLAGS) -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
	run-clang-tidy -quiet -p build/tidy "$(CURDIR)/src/.*"

format: ## clang-format over src, tests and bench (needs clang-format)
	git ls-files 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'bench/*.cpp' | xargs clang-format -i

install: build ## copies lily and the bundled model to PREFIX=/usr/local (below DESTDIR when set)
	DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

uninstall: ## removes what install copied
	rm -f "$(DESTDIR)$(PREFIX)/bin/lily"
	rm -rf "$(DESTDIR)$(PREFIX)/share/lily"

clean: ## removes the build folders
	rm -rf build build-asan build-tsan
