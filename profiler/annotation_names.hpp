// The names that a program gives its scopes, marks and memory, each known once. A program may name
// each of its steps differently, so the table is bounded: of many different names the later ones
// keep their text but for the numbers in it, and at last none.
//
// A known name costs a hash and a comparison, no lock. Names are never freed: a tool's handle of
// NVTX points to one for as long as the program likes.
//
// A domain is a name space of its own, as in NVTX: its name stands before those in it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace memlab::profiler {

struct AnnotationName {
    std::uint32_t domain = 0;
    std::string message;  ///< what the program said
    std::string text;     ///< what is recorded: with the domain's name before it
    /// What the recording knows it by: the recording's number and, below it, the string's id.
    mutable std::atomic<std::uint64_t> recorded{0};
};

/// Thread-safety: all functions, from any thread. They may throw std::bad_alloc.
class AnnotationNames {
  public:
    static constexpr std::size_t max_bytes = 255;  ///< of a message: it is cut there
    static constexpr std::size_t max_exact = 4096;
    static constexpr std::size_t max_names = 8192;
    static constexpr std::uint32_t max_domains = 1024;

    static constexpr std::uint32_t own_domain = 0;   ///< memlab.h's
    static constexpr std::uint32_t nvtx_domain = 1;  ///< NVTX's, where it names none

    AnnotationNames();

    /// The same name for the same text of the same domain.
    const AnnotationName* find(std::uint32_t domain, std::string_view message);

    /// The domain of this name. When there are too many, the one without a name.
    std::uint32_t domain(std::string_view name);

  private:
    const AnnotationName* find_slowly(std::uint32_t domain, std::string_view message);

    static constexpr std::size_t cache_size = 512;
    std::array<std::atomic<const AnnotationName*>, cache_size> cache_{};
    std::mutex mutex_;
    std::unordered_map<std::string, std::unique_ptr<AnnotationName>>
        names_;  ///< by domain and message
    std::vector<std::string> domains_;
};

/// `text`, at most `most` bytes of it, not cut within a character of UTF-8.
std::string_view cut_text(std::string_view text, std::size_t most);

}  // namespace memlab::profiler
