// Parser of the file that memlab-run writes for a run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::report {

/// The contents of a run file (memlab-run.<host>.<pid>.json).
struct RunFacts {
    struct Member {
        std::uint64_t pid = 0;
        std::uint64_t start_wall_ns = 0;
        std::uint64_t start_ticks = 0;
        bool recovered = false;
        bool running = false;
        std::uint64_t held_bytes = 0;
        std::vector<std::string> arguments;
        std::optional<std::string> report;  ///< file name; none: not written
        std::optional<std::string> log;
    };
    struct Ancestor {
        std::uint64_t parent_pid = 0;
        std::string command;
    };
    std::string file;
    std::string host;
    std::uint64_t pid = 0;  ///< of memlab-run
    std::vector<std::string> command;
    std::uint64_t start_wall_ns = 0;
    std::uint64_t end_wall_ns = 0;
    std::string signal;                      ///< that killed the command; else empty
    std::optional<std::uint64_t> exit_code;  ///< the command's
    std::map<std::string, std::string> replaced;
    std::vector<Member> members;
    std::map<std::uint64_t, Ancestor> ancestors;  ///< by pid; processes that did not use CUDA
};

/// The "format" of a JSON document ("memlab-run", "memlab-report"), which memlab writes as its
/// first member; empty if it has none there. `head`: the first bytes.
std::string document_format(std::string_view head);

/// False, with one line in `error`, if `json` is not a run file of a known version. Never throws.
bool parse_run_facts(std::string_view json, RunFacts* facts, std::string* error);

}  // namespace memlab::report
