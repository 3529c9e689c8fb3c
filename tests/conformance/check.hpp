// One line a check, the same on a GPU and on the simulated driver: "ok <name>" or
// "FAIL <name>: got <value>, want <value>". No addresses, so that two runs can be compared.
#pragma once

#include <cstdio>

namespace memlab::conformance {

inline int failures = 0;

inline void check(const char* name, long long got, long long want) {
    if (got == want) {
        std::printf("ok %s\n", name);
    } else {
        std::printf("FAIL %s: got %lld, want %lld\n", name, got, want);
        ++failures;
    }
    std::fflush(stdout);
}

inline void check_true(const char* name, bool holds) {
    check(name, holds ? 1 : 0, 1);
}

}  // namespace memlab::conformance
