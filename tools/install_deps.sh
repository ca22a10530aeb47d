#!/bin/sh
# Installs what Lily is built with (and, with "test", what its tests use besides).
#   tools/install_deps.sh [build|test]
# Does nothing, and needs neither network nor root, when everything is there.
# Debian 12 or newer, Ubuntu 22.04 or newer: apt. macOS: Homebrew. Elsewhere: says what is needed and goes on.
set -eu

APT_BUILD="g++ cmake ninja-build pkg-config python3 binutils
  nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev libutf8proc-dev
  libcurl4-openssl-dev libssl-dev libboost-dev libedit-dev libgtest-dev libbenchmark-dev"
# Tests that need one of these are skipped, visibly, where it cannot be had.
APT_TEST="clang python3-venv qemu-user g++-aarch64-linux-gnu haproxy chromium chromium-driver"
BREW="cmake ninja pkgconf nlohmann-json cli11 spdlog fmt pcre2 utf8proc openssl@3 boost googletest google-benchmark"

say() { echo "install_deps: $*" >&2; }

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing_of() {
  for package in "$@"; do
    installed "$package" || printf '%s ' "$package"
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then env DEBIAN_FRONTEND=noninteractive "$@"; else sudo env DEBIAN_FRONTEND=noninteractive "$@"; fi
}

# The sanitizer and fuzzer runtimes are a package of their own that bears the version of clang.
clang_runtime() {
  version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9][0-9]*\)$/\1/p' | head -n 1)
  if [ -n "$version" ] && apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1; then
    echo "libclang-rt-$version-dev"
  fi
}

apt_optional() {
  wanted=$(missing_of $APT_TEST $(clang_runtime))
  [ -n "$wanted" ] || return 0
  say "installing for the tests: $wanted"
  # shellcheck disable=SC2086  # a list of words on purpose
  if ! as_root apt-get install -y -q --no-install-recommends $wanted; then
    say "could not install $wanted: the tests that need them will be skipped"
  fi
}

apt_main() {
  # shellcheck disable=SC2086
  needed=$(missing_of $APT_BUILD)
  optional=""
  # shellcheck disable=SC2046,SC2086
  [ "$1" = test ] && optional=$(missing_of $APT_TEST $(clang_runtime))
  [ -n "$needed$optional" ] || return 0
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null 2>&1; then
    if [ -z "$needed" ]; then
      say "not installed, and no sudo here: $optional- the tests that need them will be skipped"
      return 0
    fi
    say "these packages are missing: $needed"
    say "installing them needs root, and there is no sudo on this machine. As root, run"
    echo "    apt-get update && apt-get install -y --no-install-recommends $needed" >&2
    say "and then make again."
    exit 1
  fi
  say "updating the package lists"
  if ! as_root apt-get update -q; then
    say "apt-get update failed (is there a network?). Missing: $needed$optional"
    [ -z "$needed" ] || exit 1
  fi
  if [ -n "$needed" ]; then
    say "installing $needed"
    # shellcheck disable=SC2086
    as_root apt-get install -y -q --no-install-recommends $needed || {
      say "apt-get could not install the packages that Lily is built with: $needed"
      exit 1
    }
  fi
  if [ "$1" = test ]; then apt_optional; fi
}

brew_main() {
  if ! xcode-select -p >/dev/null 2>&1; then
    say "Apple's command line tools are missing: run 'xcode-select --install', then make again."
    exit 1
  fi
  have=" $(brew list --formula -1 | tr '\n' ' ') "
  needed=""
  for formula in $BREW; do
    case "$have" in *" $formula "*) ;; *) needed="$needed $formula" ;; esac
  done
  [ -n "$needed" ] || return 0
  say "installing$needed"
  # shellcheck disable=SC2086
  brew install $needed
}

case "${1:-build}" in
  build | test) ;;
  *) say "usage: tools/install_deps.sh [build|test]"; exit 2 ;;
esac

if [ "$(uname -s)" = Darwin ]; then
  if ! command -v brew >/dev/null 2>&1; then
    say "Homebrew is missing. Install it, or install these yourself and run make with SKIP_DEPS=1: $BREW"
    exit 1
  fi
  brew_main
elif command -v apt-get >/dev/null 2>&1; then
  apt_main "${1:-build}"
else
  say "neither apt nor Homebrew here: the build looks for the counterparts of" $APT_BUILD
fi
