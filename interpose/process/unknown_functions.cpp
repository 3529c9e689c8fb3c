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
#include "interpose/driver/loader.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/process/function_purpose.hpp"

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

// A sentence for each function that memlab cannot follow, for the report.
struct Sentence {
    enum State { free, written, complete };
    std::atomic<State> state{free};
    bool ended_pooling = false;  ///< then it is first_reason
    char name[64] = "";
    char text[224] = "";
};
constexpr std::size_t max_sentences = 24;  // a program that asks for every name of a later CUDA
constinit Sentence sentences[max_sentences];
constinit std::atomic<void (*)(const char*)> sentence_handler{nullptr};

constinit std::atomic<bool> unseen_captures{false};

struct Newer {
    std::string_view symbol;
    int version;
};
constexpr Newer newer_functions[] = {
#define MEMLAB_NEWER(symbol, version, source) {#symbol, version},
#include "interpose/process/newer_functions.inc"
#undef MEMLAB_NEWER
};

/// A place for a new sentence about this function; null: it has one, or there is none left.
Sentence* begin_sentence(const char* name) {
    for (Sentence& each : sentences) {
        Sentence::State state = Sentence::free;
        if (each.state.compare_exchange_strong(state, Sentence::written,
                                               std::memory_order_acq_rel)) {
            std::snprintf(each.name, sizeof each.name, "%s", name);
            return &each;
        }
        // One that another thread writes just now may be the same: it is then said twice.
        if (state == Sentence::complete &&
            std::strncmp(each.name, name, sizeof each.name - 1) == 0) {
            return nullptr;
        }
    }
    return nullptr;
}

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

/// `quiet`: as in ReasonNotToPool.
void end_sentence(Sentence& sentence, bool without_pool, bool quiet) {
    sentence.ended_pooling = without_pool && !claimed.test_and_set();
    sentence.state.store(Sentence::complete, std::memory_order_release);
    if (sentence.ended_pooling) {
        disable_pooling({sentence.text, quiet, true});
    } else if (const auto handler = sentence_handler.load(std::memory_order_acquire)) {
        handler(sentence.text);
    }
}

}  // namespace

void on_unknown_function(const char* name) noexcept {
    on_untracked_work(unknown_function);
    const Purpose purpose = purpose_of(name);
    if (purpose == Purpose::other) {
        return;
    }
    if (std::string_view(name).find("apture") != std::string_view::npos) {
        unseen_captures.store(true, std::memory_order_release);
    }
    if (Sentence* const sentence = begin_sentence(name)) {
        const bool later = is_known_function(without_version(name));
        std::snprintf(sentence->text, sizeof sentence->text,
                      "the program uses %s%.63s%s does not know, which by its name may %s",
                      later ? "a version of " : "", name,
                      later ? " that this memlab" : ", which this memlab", describe(purpose));
        end_sentence(*sentence, ends_pooling(purpose), false);
    } else if (ends_pooling(purpose) && !claimed.test_and_set()) {
        disable_pooling(
            {"the program uses many driver functions that this memlab does not know", false, true});
    }
}

void on_unfollowed_call(const char* name) noexcept {
    on_untracked_work("a driver function that memlab does not follow");
    Sentence* const sentence = begin_sentence(name);
    if (sentence == nullptr) {
        return;
    }
    const auto* const newer =
        std::find_if(std::begin(newer_functions), std::end(newer_functions),
                     [name](const Newer& each) { return each.symbol == name; });
    const int version = newer != std::end(newer_functions) ? newer->version : 0;
    std::snprintf(sentence->text, sizeof sentence->text,
                  "the program calls %.63s (CUDA %d.%d), which memlab does not follow: memory "
                  "allocated since was not pooled, and what uses it is not known",
                  name, version / 1000, version % 1000 / 10);
    end_sentence(*sentence, true, true);
}

void on_unseen_library() noexcept {
    on_untracked_work("a library that bypasses memlab");
    if (!claimed.test_and_set()) {
        disable_pooling(
            {"a library was opened with RTLD_DEEPBIND or in a namespace of its own: "
             "its CUDA calls were not seen, and memory allocated since was not pooled",
             true, false});
    }
}

void set_unknown_function_handler(void (*handler)(const ReasonNotToPool& why)) {
    disable_pooling_handler.store(handler, std::memory_order_release);
}

bool captures_may_be_unseen() {
    return unseen_captures.load(std::memory_order_acquire);
}

void set_sentence_handler(void (*handler)(const char* sentence)) {
    sentence_handler.store(handler, std::memory_order_release);
    for (const Sentence& each : sentences) {
        if (each.state.load(std::memory_order_acquire) == Sentence::complete &&
            !each.ended_pooling) {
            handler(each.text);
        }
    }
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
