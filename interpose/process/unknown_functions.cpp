#include "interpose/process/unknown_functions.hpp"

#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include "interpose/driver/diagnostics.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/driver/one_stream.hpp"

namespace memlab::interpose {
namespace {

using Table = std::array<std::uint8_t, sizeof(CUuuid)>;

constexpr Table runtime_tables[] = {
    // Of the CUDA runtimes 11 to 13.
    {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
     0xf2},
    {0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d,
     0xd9},
    {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
     0xdc},
    {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
     0x66},
    {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
     0xf9},
    {0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
     0x7e},
    {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
     0x93},
    // Of cuBLAS, cuFFT and the runtime of 13.4.
    {0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
     0xf2},
    // Of cuFFT.
    {0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
     0x1e},
};

// File name prefixes. Profilers, compilers and the management library submit no work of the
// program's; of the other libraries every kernel was observed to pass the hooks (CUPTI counted the
// same ones).
constexpr std::string_view profiler_libraries[] = {"libcupti", "libcheckpoint", "libnvperf"};
constexpr std::string_view harmless_callers[] = {
    "libnvrtc", "libnvJitLink", "libnvvm",     "libnvidia-ml", "libcublas",
    "libcudnn", "libcufft",     "libcusolver", "libcusparse",  "libcurand"};

constexpr char unknown_function[] = "a driver function that memlab does not know";

// The first reason not to pool. Written once, by the thread that sets `claimed`.
constinit std::atomic_flag claimed = ATOMIC_FLAG_INIT;
constinit std::atomic<bool> reason_found{false};
constinit std::atomic<void (*)(const ReasonNotToPool&)> disable_pooling_handler{nullptr};
constinit ReasonNotToPool first_reason;
constinit char unknown_text[160] = "";

std::string_view object_file_name(const void* code) {
    const auto* const object = static_cast<const link_map*>(containing_object(code));
    const std::string_view path = object == nullptr ? std::string_view() : object->l_name;
    return path.substr(path.rfind('/') + 1);
}

void disable_pooling(const ReasonNotToPool& why) {
    first_reason = why;
    reason_found.store(true, std::memory_order_release);
    if (const auto handler = disable_pooling_handler.load(std::memory_order_acquire)) {
        handler(first_reason);
    }
}

}  // namespace

void on_unknown_function(const char* name) noexcept {
    on_untracked_work(unknown_function);
    if (!is_pool_critical(name) || claimed.test_and_set()) {
        return;
    }
    std::snprintf(unknown_text, sizeof(unknown_text),
                  "the program uses a version of %.64s that this memlab does not know", name);
    disable_pooling({unknown_text, false});
}

void on_unseen_library() noexcept {
    on_untracked_work("a library that looks past memlab");
    if (!claimed.test_and_set()) {
        disable_pooling(
            {"a library was opened with RTLD_DEEPBIND or in a namespace of its own: "
             "its CUDA calls were not seen, and memory allocated since was not pooled",
             true});
    }
}

void set_unknown_function_handler(void (*handler)(const ReasonNotToPool& why)) {
    disable_pooling_handler.store(handler, std::memory_order_release);
}

const ReasonNotToPool* reason_not_to_pool_by_unseen_calls() {
    return reason_found.load(std::memory_order_acquire) ? &first_reason : nullptr;
}

bool is_runtime_table(const CUuuid& table) {
    return std::any_of(std::begin(runtime_tables), std::end(runtime_tables),
                       [&](const Table& known) {
                           return std::memcmp(known.data(), table.bytes, known.size()) == 0;
                       });
}

void on_private_table(const CUuuid& table, const void* caller) noexcept {
    if (is_runtime_table(table)) {
        return;
    }
    const std::string_view file = object_file_name(caller);
    const auto is_of = [file](const auto& prefixes) {
        return std::any_of(std::begin(prefixes), std::end(prefixes),
                           [file](std::string_view prefix) { return file.starts_with(prefix); });
    };
    if (is_of(harmless_callers)) {
        return;
    }
    profiler_attached.store(true, std::memory_order_relaxed);
    if (is_of(profiler_libraries)) {
        return;
    }
    on_untracked_work(unknown_function);
    try {
        constexpr char digits[] = "0123456789abcdef";
        std::string text = "the work clock is not trusted: a private table of the driver, ";
        for (const char byte : table.bytes) {
            text += digits[static_cast<unsigned char>(byte) >> 4];
            text += digits[static_cast<unsigned char>(byte) & 15];
        }
        debug(text + ", was given to " + std::string(file));
    } catch (const std::bad_alloc&) {  // only a debug message
    }
}

}  // namespace memlab::interpose
