// The names of threads that were recorded. Bounded: a program may create threads without end, each
// with its own name; beyond the limit threads stay, or become, unnamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "trace/aggregate/aggregator.hpp"

namespace memlab::profiler {

/// Thread-safety: none.
class ThreadNames {
  public:
    /// Whether the program named the thread itself.
    bool given_by_program(std::uint32_t thread) const {
        const auto known = names_.find(thread);
        return known != names_.end() && known->second.by_program;
    }

    /// The thread's name, empty: none, if it is to be recorded because it has changed; else null.
    /// Valid until the next call. May throw std::bad_alloc.
    const std::string* change(std::uint32_t thread, const std::string& name, bool by_program) {
        const bool full = given_ == max_names;
        if ((name.empty() || full) && !names_.contains(thread)) {
            return nullptr;
        }
        Name& current = names_[thread];
        current.by_program = by_program;
        const std::string next = full ? std::string() : name;
        if (current.text == name || current.text == next) {
            return nullptr;
        }
        current.text = next;
        given_ += full ? 0 : 1;
        return &current.text;
    }

  private:
    struct Name {
        std::string text;
        bool by_program = false;
    };
    static constexpr std::size_t max_names = trace::Aggregator::max_thread_names;

    std::unordered_map<std::uint32_t, Name> names_;
    std::size_t given_ = 0;
};

}  // namespace memlab::profiler
