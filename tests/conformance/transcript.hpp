// What a program of CUDA calls sees, as lines that two runs can be compared by: each call with its
// arguments as the source has them, its result, and what can be observed after it.
//
// Nothing that may differ between two runs of plain CUDA is printed: addresses are printed as the
// name of what they point into and the offset from its base, ids and handles in the order in which
// they were first seen.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace memlab::conformance {

class Transcript {
  public:
    /// A heading; the calls after it belong to it.
    void scene(const char* name) { std::printf("== %s\n", name); }

    /// One call and its result, which is also returned.
    template <class Result>
    Result call(const char* text, Result result) {
        std::printf("%d %s: %d\n", ++calls_, text, static_cast<int>(result));
        std::fflush(stdout);  // a call that ends the process must not take its predecessors along
        return result;
    }

    void value(const char* what, long long number) { std::printf("    %s: %lld\n", what, number); }
    void place(const char* what, std::uint64_t address) {
        std::printf("    %s: %s\n", what, symbol(address).c_str());
    }
    /// A number without meaning of its own: printed as #1, #2 … in the order of appearance.
    void id(const char* what, std::uint64_t number) {
        const auto found = ids_.try_emplace(number, ids_.size() + 1).first;
        std::printf("    %s: %s%zu\n", what, "#", found->second);
    }

    /// From now on addresses in this range are printed as NAME+offset.
    void name(const char* text, std::uint64_t base, std::uint64_t bytes) {
        if (base != 0) {
            ranges_[base] = {text, bytes};
        }
    }
    void forget(std::uint64_t base) { ranges_.erase(base); }

    int calls() const { return calls_; }

  private:
    struct Range {
        std::string name;
        std::uint64_t bytes;
    };

    std::string symbol(std::uint64_t address) const {
        if (address == 0) {
            return "0";
        }
        auto after = ranges_.upper_bound(address);
        if (after != ranges_.begin()) {
            const auto& [base, range] = *--after;
            if (address - base < range.bytes) {
                return range.name + "+" + std::to_string(address - base);
            }
        }
        return "elsewhere";
    }

    int calls_ = 0;
    std::map<std::uint64_t, Range> ranges_;
    std::map<std::uint64_t, std::size_t> ids_;
};

inline Transcript transcript;

/// Prints a call as it stands in the source, and gives its result.
#define CALL(...) ::memlab::conformance::transcript.call(#__VA_ARGS__, (__VA_ARGS__))

/// A group of calls that runs in a process of its own.
struct Group {
    const char* name;
    void (*run)();
};

/// main() of a program of calls: `PROGRAM GROUP` runs one group, `PROGRAM` prints their names.
/// Exit code 2 for an unknown group.
template <std::size_t count>
int run_group(const Group (&groups)[count], int argc, char** argv) {
    for (const Group& group : groups) {
        if (argc < 2) {
            std::printf("%s\n", group.name);
        } else if (std::strcmp(argv[1], group.name) == 0) {
            group.run();
            std::printf("%d calls\n", transcript.calls());
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}

}  // namespace memlab::conformance
