// Keeps libmemlab.so loadable on the oldest glibc that docs/dependencies.md states, wherever it is
// built.
//
// The static libstdc++ of Ubuntu 24.04 parses GLIBCXX_TUNABLES with __isoc23_strtoul, which needs
// glibc 2.38. It is forwarded to strtoul; the two differ only in that C23 accepts "0b10".

extern "C" {
// Declared by hand: newer <cstdlib> redirects strtoul to the C23 function.
unsigned long memlab_old_strtoul(const char* text, char** end, int base) __asm__("strtoul");

// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): it is glibc's name.
unsigned long __isoc23_strtoul(const char* text, char** end, int base);
}

// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
    return memlab_old_strtoul(text, end, base);
}
