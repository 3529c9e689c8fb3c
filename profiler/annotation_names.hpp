// Interns the names that a program gives its scopes, marks and memory. A program may name each step
// differently, so a table is bounded: beyond `exact` names the numbers in a name are folded, beyond
// `all` new names become one. Labels and what the labelled memory holds have tables of their own:
// none takes the place of another kind's.
//
// A cached name costs a hash and a comparison, no lock. Names are never freed: NVTX handles point
// to them for as long as the program likes.
//
// A domain is a namespace, as in NVTX: its name prefixes those in it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "threads/mutex.hpp"

namespace memlab::profiler {

struct AnnotationName {
    std::uint32_t domain = 0;
    std::string message;  ///< as the program gave it
    std::string text;     ///< as recorded: prefixed with the domain's name
    /// Its id in the recording: the recording's number and, in the low bits, StringDef::id.
    mutable std::atomic<std::uint64_t> recorded{0};
};

/// Thread-safety: all functions, from any thread. They may throw std::bad_alloc.
class AnnotationNames {
  public:
    static constexpr std::size_t max_bytes = 255;  ///< longer messages are truncated
    struct Bounds {
        std::size_t exact = 0;
        std::size_t all = 0;
    };
    static constexpr Bounds annotations = {.exact = 4096, .all = 8192};
    static constexpr Bounds labels = {.exact = 48 << 10, .all = 56 << 10};
    /// None is folded, since "float32[#, #]" says nothing.
    static constexpr Bounds details = {.exact = 8192, .all = 8192};
    static constexpr std::uint32_t max_domains = 1024;

    static constexpr std::uint32_t own_domain = 0;   ///< memlab.h's
    static constexpr std::uint32_t nvtx_domain = 1;  ///< NVTX's default domain

    explicit AnnotationNames(Bounds bounds = annotations);

    /// The same name for the same text of the same domain.
    const AnnotationName* find(std::uint32_t domain, std::string_view message);

    /// The domain of this name; beyond max_domains, nvtx_domain.
    std::uint32_t domain(std::string_view name);

  private:
    const AnnotationName* find_slowly(std::uint32_t domain, std::string_view message);

    static constexpr std::size_t cache_size = 512;
    const Bounds bounds_;
    std::array<std::atomic<const AnnotationName*>, cache_size> cache_{};
    threads::Mutex mutex_;
    /// By domain and message.
    std::unordered_map<std::string, std::unique_ptr<AnnotationName>> names_
        MEMLAB_GUARDED_BY(mutex_);
    std::vector<std::string> domains_ MEMLAB_GUARDED_BY(mutex_);
};

/// At most `max` bytes of `text`, not split within a UTF-8 character.
std::string_view truncate_utf8(std::string_view text, std::size_t max);

}  // namespace memlab::profiler
