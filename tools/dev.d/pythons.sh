# shellcheck shell=bash
# shellcheck disable=SC2154  # root: tools/dev has it
#
# The tests of Python frames under interpreters that this machine does not have: those of another Debian
# suite, in a root file system of its own (build/pythons/SUITE, made once by debootstrap).
#
# The build runs in there as it is: the suite's glibc must not be older than this machine's. Libraries of
# this machine that the tools need and the suite lacks are taken along.

# pythons_root SUITE: makes the root with every CPython that the suite has; prints its path.
pythons_root() {
    local suite=$1 made=$root/build/pythons/$1 log=$root/build/pythons/$1.log
    local -a packages
    if [[ ! -e $made.made ]]; then
        rm -rf "$made"
        mkdir -p "$made"
        say "making a root file system of Debian $suite: $made"
        if ! debootstrap --variant=minbase "$suite" "$made" >"$log" 2>&1; then
            tail -n 5 "$log" >&2
            die "debootstrap could not make a root of Debian $suite (its words are above and in $log)"
        fi
        mapfile -t packages < <(chroot "$made" apt-cache search --names-only '^python3\.[0-9]+-minimal$' |
            sed -n 's/^python\(3\.[0-9]*\)-minimal .*/python\1-minimal libpython\1-stdlib libpython\1/p' |
            tr ' ' '\n')
        ((${#packages[@]} > 0)) || die "Debian $suite has no package python3.N-minimal"
        packages+=(python3-greenlet python3-gevent) # for those of them that the suite has built these for
        if ! chroot "$made" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends "${packages[@]}" >>"$log" 2>&1; then
            tail -n 5 "$log" >&2
            die "could not install ${packages[*]} there (its words are above and in $log)"
        fi
        touch "$made.made"
    fi
    printf '%s' "$made"
}

# Libraries of the built tools that the root lacks go to its /usr/local/lib/memlab.
add_libraries() {
    local made=$1 bin=$root/build/release/bin library
    rm -rf "$made/usr/local/lib/memlab"
    mkdir -p "$made/usr/local/lib/memlab"
    for library in $(ldd "$bin/memlab-report" "$bin/log_audit" "$bin/log_to_report" 2>/dev/null |
        sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u); do
        if [[ -z $(find "$made/usr/lib/x86_64-linux-gnu" -name "$(basename "$library")" -print -quit) ]]; then
            cp -L "$library" "$made/usr/local/lib/memlab/"
        fi
    done
}

# in_root ROOT COMMAND...: runs it in the root, with the project and /tmp where they are here.
in_root() {
    local made=$1
    shift
    mkdir -p "$made$root"
    # shellcheck disable=SC2016  # the inner shell expands them
    unshare --mount sh -ec '
        made=$1 root=$2
        shift 2
        mount --bind "$root" "$made$root"
        mount --bind /tmp "$made/tmp"
        mount -t proc proc "$made/proc"
        mount --rbind /dev "$made/dev"
        exec chroot "$made" /usr/bin/env -C "$root" LD_LIBRARY_PATH=/usr/local/lib/memlab "$@"
    ' sh "$made" "$root" "$@"
}

# test_pythons SUITE: 1 if a test failed.
test_pythons() {
    local made python version status=0
    made=$(pythons_root "$1")
    add_libraries "$made"
    for python in "$made"/usr/bin/python3.*[0-9]; do
        version=${python##*/python}
        say "CPython $version of Debian $1"
        in_root "$made" "/usr/bin/python$version" -B tests/interpose/run.py --build build/release \
            test_python "$version" || status=1
        if in_root "$made" "/usr/bin/python$version" -c 'import sys; sys.exit(not sys._jit.is_available())' 2>/dev/null; then
            say "CPython $version of Debian $1 with its JIT compiler"
            in_root "$made" "/usr/bin/python$version" -B tests/interpose/run.py --build build/release \
                --set PYTHON_JIT=1 test_python "$version" || status=1
        fi
        in_root "$made" "/usr/bin/python$version" -B tests/unit/python/test_line_table.py \
            build/release/lib/libline_table_probe.so || status=1
    done
    return "$status"
}
