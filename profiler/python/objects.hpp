// Reads Python objects directly from memory: takes no references, calls no Python API. The caller
// keeps the object alive: a frame holds a reference to its code object, and that to its texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "profiler/python/layout.hpp"

namespace memlab::profiler::python {

/// The value of type T at `offset` bytes into the object.
template <class T>
T read(const void* object, std::size_t offset) {
    T value;
    std::memcpy(&value, static_cast<const char*>(object) + offset, sizeof(T));
    return value;
}

/// A word of memory that may not be readable; 0 then.
std::uintptr_t word_at(std::uintptr_t address);

/// Who made an object's class.
enum class ObjectClass : std::uint8_t { any, by_python_code };

/// Whether there is an object that the garbage collector knows, of such a class. Any address will
/// do.
bool is_collected_object(std::uintptr_t object, ObjectClass of);

/// Addresses of the interpreter's type objects, for is_a().
struct Types {
    const void* code = nullptr;
    const void* str = nullptr;
    const void* bytes = nullptr;
};

inline bool is_a(const void* object, const void* type) {
    return object != nullptr && read<const void*>(object, object_type) == type;
}

/// The offset in bytes of a code object's first instruction after the setup of the frame.
inline std::ptrdiff_t first_traceable(const Layout& layout, const void* code) {
    if (layout.code_first_traceable == 0) {
        return INT32_MIN;
    }
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

/// False unless `object` is exactly a str with accessible characters (not a legacy one of 3.11).
bool get_characters(const Layout& layout, const Types& types, const void* object,
                    Characters* characters);

/// As UTF-8, truncated to a few KiB; invalid characters become U+FFFD. Throws std::bad_alloc.
std::string utf8(const Characters& characters);

/// The contents of a bytes object; empty for other objects.
std::span<const unsigned char> get_bytes(const Types& types, const void* object);

}  // namespace memlab::profiler::python
