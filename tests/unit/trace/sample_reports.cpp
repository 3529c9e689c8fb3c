// Writes reports of many shapes into a folder, for the schema test; or small ones, as a fuzzer's
// seed corpus.
#include <cstdio>
#include <cstdlib>

#include "model/report_file.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/aggregator.hpp"

using namespace memlab::test;

int main(int argc, char** argv) {
    if (argc != 2 && argc != 3) {
        std::fputs("usage: sample_reports FOLDER [RECORDS]\n", stderr);
        return 2;
    }
    const std::size_t count = argc == 3 ? std::strtoul(argv[2], nullptr, 10) : 3000;
    const auto write = [&](const std::string& name, const Records& records) {
        Aggregator aggregator;
        feed(records, aggregator);
        const auto result =
            memlab::model::write_report(aggregator, std::string(argv[1]) + "/" + name + ".json");
        if (!result.ok()) {
            std::fprintf(stderr, "%s\n", result.error.c_str());
        }
        return result.ok();
    };
    bool good = write("empty", {}) && write("device", {DeviceInfo{.index = 0}});
    for (std::uint64_t seed = 1; seed <= 4 && good; ++seed) {
        good = write("plausible" + std::to_string(seed),
                     PlausibleRecords::make(seed, count, seed != 4)) &&
               write("wild" + std::to_string(seed), WildRecords::make(seed, count, seed != 4));
    }
    return good ? 0 : 1;
}
