// libFuzzer: any bytes as an event log that grows in pieces, as it is followed. Nothing may crash
// or hang, and a log that is sound as a whole has the figures of reading it at once.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "model/json_writer.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/reading/log_reader.hpp"
#include "trace/reading/log_tail.hpp"

using namespace memlab::trace;
using namespace memlab::fuzz;

namespace {

void follow(const std::uint8_t* data, std::size_t size, std::size_t piece, LogPart part) {
    const int file = memfd_create("log", MFD_CLOEXEC);
    require(file >= 0);
    Aggregator figures;
    LogTail tail(file, "log", figures, part);
    std::uint64_t records = 0;
    LogReadResult read;
    for (std::size_t at = 0; at <= size; at += piece) {
        const std::size_t count = std::min(piece, size - at);
        require(pwrite(file, data + at, count, static_cast<off_t>(at)) ==
                static_cast<ssize_t>(count));
        read = tail.read();
        require(read.records >= records);
        require(read.offset <= size);
        records = read.records;
    }
    Aggregator at_once;
    const LogReadResult whole = read_log(data, size, at_once, part);
    if (read.status == whole.status && read.records == whole.records && tail.laps() == 0) {
        require(memlab::model::report_to_string(figures) ==
                memlab::model::report_to_string(at_once));
    }
    close(file);
    require(whole.status != LogStatus::complete || read.status == LogStatus::complete);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) {
        return 0;
    }
    const std::size_t piece = std::max<std::size_t>(size * (1 + data[size - 1] % 7) / 8, 1);
    for (const LogPart part : {LogPart::sums, LogPart::everything}) {
        follow(data, size, piece, part);
        const auto log = as_open_log(data, size);
        follow(log.data(), log.size(), std::max<std::size_t>(log.size() / 3, 1), part);
    }
    return 0;
}
