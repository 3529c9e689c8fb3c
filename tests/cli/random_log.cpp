// Writes an event log of random records, so that exports can be judged on logs that nobody planned.
//
//   random_log plausible|wild SEED RECORDS PATH
//
// "plausible" records are a program's, with an accident now and then; "wild" ones are anything that
// a log can carry: see tests/unit/trace/recording.hpp. The same arguments give the same log.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "tests/unit/trace/recording.hpp"
#include "trace/log_writer.hpp"

int main(int argc, char** argv) {
    using namespace memlab::test;
    if (argc != 5) {
        std::cerr << "usage: random_log plausible|wild SEED RECORDS PATH\n";
        return 2;
    }
    const std::uint64_t seed = std::strtoull(argv[2], nullptr, 10);
    const std::size_t count = std::strtoull(argv[3], nullptr, 10);
    const bool ends = seed % 2 == 0;
    const Records records = std::strcmp(argv[1], "wild") == 0
                                ? WildRecords::make(seed, count, ends)
                                : PlausibleRecords::make(seed, count, ends);
    auto created = memlab::trace::LogWriter::create(argv[4], 0);
    if (!created.writer) {
        std::cerr << "random_log: " << created.error << "\n";
        return 1;
    }
    feed(records, *created.writer);
    created.writer->close();
    return 0;
}
