# shellcheck shell=bash
# shellcheck disable=SC2034  # the lists are used by tools/dev
#
# What the project needs from the system, how each need is recognised, and how it is installed.
#
# A need is met when the thing itself is there (a command, a header, a Python module), wherever it
# came from; the Debian/Ubuntu package is only the way to get it. So a prepared machine of any
# distribution works, a second run costs no package manager call, and apt is asked only when
# something is really missing.

# package|probe argument
needs_build=(
    "cmake|command cmake"
    "ninja-build|command ninja"
    "g++|command g++"
    "pkg-config|command pkg-config"
    "libspdlog-dev|header spdlog/spdlog.h"
    "libfmt-dev|header fmt/format.h"
    "nlohmann-json3-dev|header nlohmann/json.hpp"
    "libcli11-dev|header CLI/CLI.hpp"
    "libdw-dev|header elfutils/libdwfl.h"
    "libtomlplusplus-dev|header toml++/toml.h"
    "zlib1g-dev|header zlib.h"
    "catch2|header catch2/catch.hpp catch2/catch_all.hpp"
    "python3|command python3"
    "python3-jsonschema|module jsonschema"
)
needs_format=("clang-format-14|command clang-format-14")
needs_lint=(
    "clang-tidy|command clang-tidy"
    "clang|command clang++"
    "shellcheck|command shellcheck"
)
needs_fuzz=(
    "clang|command clang++"
    "libclang-rt-dev|fuzzer"
)
# Installed along with the rest, never asked for on its own.
# (Without the last ones tests are skipped: two read what memlab-report exports, clang, lld and llvm make and
# name what its names and lines are compared with, and libdebuginfod, which Debian and Ubuntu name
# differently, asks a server for debug information.)
nice_to_have=(ccache protobuf-compiler python3-prometheus-client clang lld llvm libdebuginfod1 libdebuginfod1t64)

say() { printf 'dev: %s\n' "$*" >&2; }

# Bad surroundings or bad usage: one line that says what and what to do.
die() {
    say "$*"
    exit 2
}

has_header() {
    local directory name
    local -a directories
    IFS=: read -r -a directories <<<"${CPATH:-}:${CPLUS_INCLUDE_PATH:-}"
    directories+=(/usr/include /usr/include/x86_64-linux-gnu /usr/local/include)
    for directory in "${directories[@]}"; do
        for name in "$@"; do
            if [[ -n $directory && -e $directory/$name ]]; then return 0; fi
        done
    done
    return 1
}

# The build looks at the same two interpreters (cmake/MemlabBuild.cmake): a virtual environment in
# front of the system's Python need not know the packages.
has_module() {
    local interpreter
    for interpreter in python3 /usr/bin/python3; do
        if "$interpreter" -c "import $1" 2>/dev/null; then return 0; fi
    done
    return 1
}

has_fuzzer() {
    local resources
    resources=$(clang++ -print-resource-dir 2>/dev/null) || return 1
    [[ -n $(find "$resources/" -name 'libclang_rt.fuzzer*.a' -print -quit 2>/dev/null) ]]
}

is_met() {
    local -a probe
    read -r -a probe <<<"$1"
    case ${probe[0]} in
        command) command -v "${probe[1]}" >/dev/null ;;
        header) has_header "${probe[@]:1}" ;;
        module) has_module "${probe[1]}" ;;
        fuzzer) has_fuzzer ;;
    esac
}

# missing_packages NEED...: the packages of those needs that are not met, on one line.
missing_packages() {
    local need
    local -a missing=()
    for need in "$@"; do
        is_met "${need#*|}" || missing+=("${need%%|*}")
    done
    printf '%s' "${missing[*]}"
}

# need PURPOSE NEED...: installs what is missing, or explains in one line what to install.
need() {
    local missing log package purpose=$1
    local -a as_root=() wanted
    shift
    missing=$(missing_packages "$@")
    if [[ -z $missing ]]; then return 0; fi

    if [[ -n ${no_install:-} ]]; then
        die "missing to $purpose: apt-get install $missing (Debian/Ubuntu names)"
    fi
    if ! command -v apt-get >/dev/null; then
        die "missing here, and there is no apt to install them with (Debian/Ubuntu names): $missing"
    fi
    if [[ $(id -u) != 0 ]]; then
        as_root=(sudo)
        [[ -t 0 ]] || as_root+=(-n) # nobody there to type a password
        if ! command -v sudo >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
            die "no permission to install; ask an administrator for: apt-get install $missing"
        fi
    fi

    say "installing what is missing to $purpose: $missing"
    log=$(mktemp)
    read -r -a wanted <<<"$missing"
    as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq)
    if ! { "${as_root[@]}" update &&
        "${as_root[@]}" install -y --no-install-recommends "${wanted[@]}"; } >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        die "apt could not install (its words are above): $missing"
    fi
    rm -f "$log"
    for package in "${nice_to_have[@]}"; do
        "${as_root[@]}" install -y --no-install-recommends "$package" >/dev/null 2>&1 </dev/null || true
    done

    missing=$(missing_packages "$@")
    [[ -z $missing ]] || die "installed, yet not found where the build looks for them: $missing"
}

# The CUDA Toolkit comes from NVIDIA, not from Debian (whose own is too old): found, never installed.
# Puts it in front of PATH and tells CMake where it is.
need_cuda() {
    local candidate root version
    for candidate in "$(command -v nvcc || true)" "${CUDA_HOME:-}/bin/nvcc" "${CUDA_PATH:-}/bin/nvcc" \
        /usr/local/cuda/bin/nvcc; do
        if [[ -z $candidate || ! -x $candidate ]]; then continue; fi
        root=$(dirname -- "$(dirname -- "$(readlink -f -- "$candidate")")")
        version=$("$candidate" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
        if ((${version:-0} < 13)); then continue; fi
        export CUDAToolkit_ROOT=$root CUDACXX=$candidate
        PATH=$(dirname -- "$candidate"):$PATH
        return 0
    done
    die "no CUDA Toolkit 13.0 or newer (nvcc and headers) on PATH, in CUDA_HOME or in" \
        "/usr/local/cuda: install it from https://developer.nvidia.com/cuda-downloads or set CUDA_HOME"
}
