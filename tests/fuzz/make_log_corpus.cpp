// Writes small event logs for the fuzzer to start from: whole files, and bare records as they lie
// in a block.
#include <cstdio>
#include <filesystem>

#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_format.hpp"
#include "trace/log_writer.hpp"

using namespace memlab::test;

namespace {

/// States of checkpoints, as fuzz_checkpoint takes them.
class States final : public GenericSink<States> {
  public:
    void take(const AggregateState& part) {
        bytes.insert(bytes.end(), part.bytes.begin(), part.bytes.end());
    }
    void take(const auto& /*record*/) {}
    std::vector<std::uint8_t> bytes;
};

int write_checkpoints(const std::string& folder) {
    for (std::size_t events = 50; events <= 400; events += 50) {
        Aggregator aggregator;
        feed(PlausibleRecords::make(1, events, false), aggregator);
        States states;
        aggregator.checkpoint(states);
        write_file(folder + "/state" + std::to_string(events), states.bytes);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const bool checkpoints = argc == 3 && std::string(argv[1]) == "--checkpoints";
    if (argc != 2 && !checkpoints) {
        std::fputs("usage: make_log_corpus [--checkpoints] FOLDER\n", stderr);
        return 2;
    }
    const std::string folder = argv[argc - 1];
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    if (checkpoints) {
        return write_checkpoints(folder);
    }
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        const Records records = seed % 2 == 0   ? PlausibleRecords::make(seed, 200, seed % 3 != 0)
                                : seed % 3 == 0 ? TensorRecords::make(seed, 100)
                                                : WildRecords::make(seed, 40, seed % 3 != 0);
        const std::string path = folder + "/log" + std::to_string(seed);
        // Some stop early: they have a record that nobody gives them.
        auto created = memlab::trace::LogWriter::create(path, seed % 4 == 3 ? 4000 : 0);
        if (created.writer == nullptr) {
            std::fprintf(stderr, "%s\n", created.error.c_str());
            return 1;
        }
        feed_short(records, *created.writer);
        created.writer->close();
        auto bytes = read_file(path);
        bytes.erase(bytes.begin(),
                    bytes.begin() + format::file_header_size + format::block_header_size);
        write_file(folder + "/records" + std::to_string(seed), bytes);
    }
    return 0;
}
