#include "profiler/python/objects.hpp"

#include <algorithm>

#include "profiler/unwind/stack_memory.hpp"

namespace memlab::profiler::python {
namespace {

// Sufficient for any name or path; bounds the cost of hostile code objects.
constexpr std::size_t max_text = 4096;
constexpr std::size_t max_bytes = std::size_t{64} << 20;

constexpr std::size_t type_flags = 168;
constexpr std::uintptr_t type_is_on_heap = std::uintptr_t{1} << 9;
constexpr std::uintptr_t type_is_ready = std::uintptr_t{1} << 12;
constexpr std::uintptr_t type_is_collected = std::uintptr_t{1} << 14;
constexpr std::uintptr_t type_is_type = std::uintptr_t{1} << 31;  ///< its objects are types

void append_utf8(std::string& text, std::uint32_t character) {
    const bool surrogate = character >= 0xd800 && character < 0xe000;
    if (surrogate || character > 0x10ffff) {
        character = 0xfffd;
    }
    const auto add = [&text](std::uint32_t byte) { text += static_cast<char>(byte); };
    if (character < 0x80) {
        add(character);
    } else if (character < 0x800) {
        add(0xc0 | character >> 6);
        add(0x80 | (character & 63));
    } else if (character < 0x10000) {
        add(0xe0 | character >> 12);
        add(0x80 | (character >> 6 & 63));
        add(0x80 | (character & 63));
    } else {
        add(0xf0 | character >> 18);
        add(0x80 | (character >> 12 & 63));
        add(0x80 | (character >> 6 & 63));
        add(0x80 | (character & 63));
    }
}

}  // namespace

std::uintptr_t word_at(std::uintptr_t address) {
    std::uintptr_t word = 0;
    return unwind::StackMemory().read(address, &word) ? word : 0;
}

bool is_collected_object(std::uintptr_t object, ObjectClass of) {
    const auto flags_of = [](std::uintptr_t type) { return word_at(type + type_flags); };
    const std::uintptr_t type = word_at(object + object_type);
    const std::uintptr_t wanted = type_is_ready | type_is_collected |
                                  (of == ObjectClass::by_python_code ? type_is_on_heap : 0);
    return type % sizeof(void*) == 0 && (flags_of(type) & wanted) == wanted &&
           (flags_of(word_at(type + object_type)) & type_is_type) != 0;
}

bool get_characters(const Layout& layout, const Types& types, const void* object,
                    Characters* characters) {
    if (!is_a(object, types.str)) {
        return false;
    }
    // Bits of PyASCIIObject::state: interned 2, kind 3, compact 1, ascii 1.
    const auto state = read<std::uint32_t>(object, text_state);
    const std::size_t width = state >> 2 & 7;
    const bool compact = (state >> 5 & 1) != 0;
    const bool ascii = (state >> 6 & 1) != 0;
    const auto count = read<std::int64_t>(object, text_length);
    if ((width != 1 && width != 2 && width != 4) || count < 0) {
        return false;
    }
    characters->width = width;
    characters->count = static_cast<std::size_t>(count);
    const auto* begin = static_cast<const unsigned char*>(object);
    if (compact) {
        characters->data = begin + (ascii ? layout.ascii_size : layout.compact_size);
        return true;
    }
    characters->data = read<const unsigned char*>(object, layout.compact_size);
    return characters->data != nullptr;
}

std::string utf8(const Characters& characters) {
    std::string text;
    const std::size_t count = std::min(characters.count, max_text);
    text.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        switch (characters.width) {
            case 1:
                append_utf8(text, characters.data[i]);
                break;
            case 2:
                append_utf8(text, read<std::uint16_t>(characters.data, i * 2));
                break;
            default:
                append_utf8(text, read<std::uint32_t>(characters.data, i * 4));
                break;
        }
    }
    if (count < characters.count) {
        text += "...";
    }
    return text;
}

std::span<const unsigned char> get_bytes(const Types& types, const void* object) {
    if (!is_a(object, types.bytes)) {
        return {};
    }
    const auto size = read<std::int64_t>(object, object_count);
    if (size < 0 || static_cast<std::size_t>(size) > max_bytes) {
        return {};
    }
    return {static_cast<const unsigned char*>(object) + bytes_data, static_cast<std::size_t>(size)};
}

}  // namespace memlab::profiler::python
