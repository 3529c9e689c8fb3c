#include "profiler/python/debug_offsets.hpp"

#include <cstdint>
#include <cstring>
#include <string_view>

#include "profiler/python/objects.hpp"

namespace memlab::profiler::python {
namespace {

constexpr std::string_view cookie = "xdebugpy";
constexpr std::size_t version_word = 1;
constexpr std::size_t free_threaded_word = 2;

/// Where an offset stands, as a word of 64 bits, in 3.13, 3.14 and 3.15, and what memlab takes it
/// to be.
struct DebugOffset {
    const char* name;
    std::size_t words[3];
    std::size_t Layout::*field;  ///< null: the same in all versions, `value`
    std::size_t value = 0;
};

constexpr DebugOffset debug_offsets[] = {
    {"PyThreadState.interp", {22, 25, 25}, &Layout::thread_interpreter},
    {"PyThreadState.current_frame", {23, 26, 26}, &Layout::thread_frame},
    {"_PyInterpreterFrame.previous", {29, 32, 40}, &Layout::frame_previous},
    {"_PyInterpreterFrame.f_executable", {30, 33, 41}, &Layout::frame_code},
    {"_PyInterpreterFrame.instr_ptr", {31, 34, 42}, &Layout::frame_instruction},
    {"_PyInterpreterFrame.localsplus", {32, 35, 43}, &Layout::frame_locals},
    {"_PyInterpreterFrame.owner", {33, 36, 44}, &Layout::frame_owner},
    {"PyCodeObject.co_filename", {35, 40, 48}, &Layout::code_filename},
    {"PyCodeObject.co_qualname", {37, 42, 50}, &Layout::code_qualname},
    {"PyCodeObject.co_linetable", {38, 43, 51}, &Layout::code_line_table},
    {"PyCodeObject.co_firstlineno", {39, 44, 52}, &Layout::code_first_line},
    {"PyCodeObject.co_code_adaptive", {43, 48, 56}, &Layout::code_bytes},
    {"PyObject.ob_type", {45, 51, 59}, nullptr, object_type},
    {"PyBytesObject.ob_size", {65, 75, 87}, nullptr, object_count},
    {"PyBytesObject.ob_sval", {66, 76, 88}, nullptr, bytes_data},
    {"PyASCIIObject.state", {68, 78, 90}, nullptr, text_state},
    {"PyASCIIObject.length", {69, 79, 91}, nullptr, text_length},
    {"sizeof PyASCIIObject", {70, 80, 92}, &Layout::ascii_size},
};

std::uint64_t word_of(std::span<const std::byte> runtime, std::size_t word) {
    return read<std::uint64_t>(runtime.data(), word * sizeof(std::uint64_t));
}

bool has_debug_offsets(std::span<const std::byte> runtime) {
    return runtime.size() >= debug_offsets_bytes &&
           std::memcmp(runtime.data(), cookie.data(), cookie.size()) == 0;
}

}  // namespace

bool says_free_threaded(std::span<const std::byte> runtime) {
    return has_debug_offsets(runtime) && word_of(runtime, free_threaded_word) != 0;
}

std::string difference_to(const Layout& layout, std::span<const std::byte> runtime) {
    if (!has_debug_offsets(runtime)) {
        return "does not say where it has its structures (_Py_DebugOffsets)";
    }
    if (word_of(runtime, version_word) >> 16 != (3U << 8 | static_cast<unsigned>(layout.minor))) {
        return "says of its structures that they are another version's";
    }
    const auto version = static_cast<std::size_t>(layout.minor - debug_offsets_from_minor);
    for (const DebugOffset& each : debug_offsets) {
        const std::uint64_t found = word_of(runtime, each.words[version]);
        const std::size_t known = each.field == nullptr ? each.value : layout.*each.field;
        if (found != known) {
            return std::string("has ") + each.name + " at " + std::to_string(found) + ", not at " +
                   std::to_string(known) + " as memlab knows it";
        }
    }
    return {};
}

}  // namespace memlab::profiler::python
