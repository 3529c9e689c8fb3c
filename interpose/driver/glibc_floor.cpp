// Keeps libmemlab.so at the glibc that docs/dependencies.md states, wherever it is built.
//
// The static libstdc++ of Ubuntu 24.04 reads GLIBCXX_TUNABLES (for its exceptions' reserve) with a
// function that glibc has since 2.38; a library built there would not load on an older system. The
// same text means the same to the old one: only "0b10" is a number to C23 alone.

extern "C" {
// By its old name: <cstdlib> there renames strtoul to the new one.
unsigned long memlab_old_strtoul(const char* text, char** end, int base) __asm__("strtoul");

// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): it is glibc's name.
unsigned long __isoc23_strtoul(const char* text, char** end, int base);
}

// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
    return memlab_old_strtoul(text, end, base);
}
