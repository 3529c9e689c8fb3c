// Reading the interpreter's objects where they lie, without the interpreter: no reference is taken
// and nothing is called. The caller makes sure that the object stays: a frame holds its code
// object, and that holds its texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "profiler/python/layout.hpp"

namespace memlab::profiler::python {

/// The value of type T that lies `offset` bytes into the object.
template <class T>
T read(const void* object, std::size_t offset) {
    T value;
    std::memcpy(&value, static_cast<const char*>(object) + offset, sizeof(T));
    return value;
}

/// The addresses of the interpreter's types, to tell what a pointer points to.
struct Types {
    const void* code = nullptr;
    const void* str = nullptr;
    const void* bytes = nullptr;
};

inline bool is_a(const void* object, const void* type) {
    return object != nullptr && read<const void*>(object, object_type) == type;
}

/// Of the first instruction of a code object that a frame is at once it has been set up, in bytes.
inline std::ptrdiff_t first_traceable(const Layout& layout, const void* code) {
    return std::ptrdiff_t{read<std::int32_t>(code, layout.code_first_traceable)} *
           static_cast<std::ptrdiff_t>(instruction_size);
}

/// The characters of a str: `width` (1, 2 or 4) bytes each; Latin-1 where it is 1.
struct Characters {
    const unsigned char* data = nullptr;
    std::size_t count = 0;
    std::size_t width = 1;
    std::size_t bytes() const { return count * width; }
};

/// False for what is not exactly a str, or one whose characters are elsewhere (3.11's oldest kind).
bool characters_of(const Layout& layout, const Types& types, const void* object,
                   Characters* characters);

/// As UTF-8, no longer than a few KiB; what is no character becomes U+FFFD. Throws std::bad_alloc.
std::string utf8(const Characters& characters);

/// Empty for what is not a bytes object.
std::span<const unsigned char> bytes_of(const Types& types, const void* object);

}  // namespace memlab::profiler::python
