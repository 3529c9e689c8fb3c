// log_to_report FILE.memlog: prints the report that an event log amounts to, to compare with the
// one that the process itself wrote. The two are made by the same Aggregator, online and over the
// log: what differs was not recorded, or not in the same order.
//
// Exit code: 0, or 2 when the file is no log.
#include <cstdio>
#include <string>

#include "model/json_writer.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/reading/log_reader.hpp"

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FILE.memlog\n", argv[0]);
        return 2;
    }
    memlab::trace::Aggregator aggregator;
    const memlab::trace::LogReadResult read = memlab::trace::read_log(argv[1], aggregator);
    if (!read.is_log()) {
        std::fprintf(stderr, "%s\n", read.message.c_str());
        return 2;
    }
    const std::string report = memlab::model::report_to_string(aggregator);
    return std::fwrite(report.data(), 1, report.size(), stdout) == report.size() ? 0 : 2;
}
