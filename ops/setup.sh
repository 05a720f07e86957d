#!/bin/sh
# Makes .venv hold exactly what requirements.lock names, and the project itself in editable form.
#
# Usage: ops/setup.sh        from anywhere; does nothing, silently and fast, when nothing has changed
#
#   PYTHON               the interpreter to use (default: the first of python3, python3.13 … python3.11 that fits)
#   EMELEX_WHEEL_CACHE   where the built llama-cpp-python is kept (default: XDG_CACHE_HOME or ~/.cache, emelex/wheels)
#
# Everything is installed by the lock's hashes. llama-cpp-python comes as source only: its sdist is checked against the
# lock and built once into the cache (docs/adr/0007-wheel-cache.md); the wheel's own hash is kept beside it.
set -eu
umask 022

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv
stamp=$venv/.setup-stamp
lock=$root/requirements.lock

say() {
    printf 'setup: %s\n' "$1" >&2
}

die() {
    say "$1"
    exit 1
}

# --- nothing changed: leave at once ----------------------------------------------------------------------------------

wanted="$root ${PYTHON:-} $(cat "$lock" "$root/pyproject.toml" "$root/ops/setup.sh" | cksum)"
is_current() {
    [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]
}
if is_current; then
    exit 0
fi

# --- what this machine must have: all that is missing, in one line ---------------------------------------------------

fits() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        ! fits "$PYTHON" || printf '%s' "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11; do
        if fits "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
}

has_any() {
    for name in "$@"; do
        if command -v "$name" >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

missing=''
packages=''
need() {
    missing="$missing${missing:+, }$1"
    packages="$packages${packages:+ }$2"
}

# AVX2 and its companions are on every x86-64 machine since about 2015; a wheel that asks for just these runs on all of
# them. Anything else is built for the processor at hand, so that processor is part of the folder's name.
processor_flags() {
    if [ "$(uname -m)" = x86_64 ] && [ -r /proc/cpuinfo ]; then
        for flag in avx avx2 fma f16c bmi2; do
            grep -qw "$flag" /proc/cpuinfo || break
            [ "$flag" != bmi2 ] || { printf 'avx2' && return; }
        done
    fi
    { grep -m1 -E '^(flags|Features)' /proc/cpuinfo || sysctl -n machdep.cpu.brand_string || uname -a; } 2>/dev/null |
        cksum | sed 's/^\([0-9]*\).*/native-\1/'
}

python=$(find_python)
[ -n "$python" ] || need "Python 3.11 or later${PYTHON:+ (PYTHON=$PYTHON is not)}" "python3 python3-venv"
if [ -n "$python" ] && ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    need 'the venv module of Python' python3-venv
fi

version=$(sed -n 's/^llama-cpp-python==\([^ ]*\).*/\1/p' "$lock")
flags=$(processor_flags)
cache=${EMELEX_WHEEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/emelex/wheels}
folder=$cache
if [ -n "$python" ]; then
    abi=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("SOABI"))')
    folder=$cache/$abi-$flags
fi

cached_wheel() {
    for wheel in "$folder/llama_cpp_python-$version-"*.whl; do
        if [ -f "$wheel" ]; then
            printf '%s' "$wheel"
        fi
        return 0
    done
}

if [ -z "$(cached_wheel)" ]; then
    has_any "${CC:-cc}" gcc clang || need 'a C compiler' gcc
    has_any "${CXX:-c++}" g++ clang++ || need 'a C++ compiler' g++
    has_any cmake || need 'cmake' cmake
fi

if [ -n "$missing" ]; then
    if [ "$(uname -s)" = Darwin ]; then
        die "missing: $missing. Get them with: xcode-select --install; brew install python@3.13 cmake"
    fi
    die "missing: $missing. On Debian or Ubuntu: apt-get install $packages (elsewhere: the packages of those names)"
fi

# --- the environment ---------------------------------------------------------------------------------------------------

# Takes an exclusive kernel lock on descriptor 9; it lasts until this script closes the descriptor or ends. Two of these
# scripts on one checkout, or two checkouts that share a wheel cache, go one after the other.
lock_9() {
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
}

exec 9<"$root"
lock_9
if is_current; then
    exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if ! fits "$venv/bin/python" || { [ -n "${PYTHON:-}" ] &&
    [ "$("$venv/bin/python" -c 'import sys; print(sys.version_info[:2])')" != \
        "$("$python" -c 'import sys; print(sys.version_info[:2])')" ]; }; then
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi
rm -f "$stamp"

pip() {
    "$venv/bin/python" -m pip --disable-pip-version-check -qq "$@"
}

is_llama='/^llama-cpp-python==/'
awk "$is_llama { skip = 1 } !skip { print } skip && !/\\\\\$/ { skip = 0 }" "$lock" >"$scratch/others.txt"
awk "$is_llama { take = 1 } take { print } take && !/\\\\\$/ { exit }" "$lock" >"$scratch/llama.txt"

say "installing $(grep -c '^[a-z].*==' "$scratch/others.txt") packages by hash"
pip install --require-hashes --no-deps -r "$scratch/others.txt"

# --- llama-cpp-python: built once, then reused ---------------------------------------------------------------------------

sha256() {
    "$venv/bin/python" -c 'import hashlib, sys; print(hashlib.file_digest(open(sys.argv[1], "rb"), "sha256").hexdigest())' \
        "$1"
}

is_intact() {
    [ -n "$1" ] && [ -f "$1.sha256" ] && [ "$(sha256 "$1")" = "$(cat "$1.sha256")" ]
}

build_llama() {
    say "building llama-cpp-python $version, once for this machine: some minutes"
    arguments=-DLLAVA_BUILD=OFF
    if [ "$flags" = avx2 ]; then
        arguments="$arguments -DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"
    fi
    # Without pip's cache: a wheel found there may have been built with other flags.
    PATH="$venv/bin:$PATH" CMAKE_ARGS=$arguments SKBUILD_BUILD_TARGETS='llama;ggml;llama-common' \
        pip wheel --require-hashes --no-deps --no-build-isolation --no-cache-dir --no-binary llama-cpp-python \
        --wheel-dir "$scratch/wheel" -r "$scratch/llama.txt"
    rm -f "$folder/llama_cpp_python-$version-"*
    # The digest first, the wheel last and by rename: a wheel that is there is whole.
    for wheel in "$scratch/wheel/"*.whl; do
        name=$(basename "$wheel")
        sha256 "$wheel" >"$folder/$name.sha256"
        cp "$wheel" "$folder/.$name.part"
        mv "$folder/.$name.part" "$folder/$name"
    done
}

mkdir -p "$folder"
(
    exec 9<"$folder"
    lock_9
    wheel=$(cached_wheel)
    if ! is_intact "$wheel"; then
        [ -z "$wheel" ] || say "the cached $wheel does not match its digest; it is built again"
        build_llama
        wheel=$(cached_wheel)
    fi
    built=$(cat "$wheel.sha256")
    # Reinstalling takes seconds and would pull the library from under a running process, so only when it differs.
    if [ ! -f "$venv/.llama-wheel" ] || [ "$(cat "$venv/.llama-wheel")" != "$built" ]; then
        pip install --no-deps --no-index --force-reinstall "$wheel"
        printf '%s\n' "$built" >"$venv/.llama-wheel"
    fi
)

# --- the project itself ----------------------------------------------------------------------------------------------

pip install --no-deps --no-index --no-build-isolation --editable "$root"
printf '%s\n' "$wanted" >"$stamp"
say 'ready'
