// Reading ahead delivers the same records in the same order as trace::read_log(), for any log.
#include <algorithm>
#include <stdexcept>
#include <thread>
#include <vector>

#include "report/parallel.hpp"
#include "report/reading/log_report.hpp"
#include "report/reading/read_ahead.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_writer.hpp"
#include "trace/record_sink.hpp"

using namespace memlab::test;
using memlab::report::read_log_ahead;

namespace {

std::string written(const TemporaryFolder& folder, const Records& records) {
    std::string path = folder / "log";
    auto created = LogWriter::create(path, 0);
    REQUIRE(created.writer);
    feed(records, *created.writer);
    created.writer->close();
    return path;
}

void check_same(const std::string& path) {
    Recording expected;
    Recording found;
    const LogReadResult plain = read_log(path, expected);
    const LogReadResult ahead = read_log_ahead(path, found);
    CHECK(difference(found.records, expected.records) == nothing);
    CHECK(ahead.status == plain.status);
    CHECK(ahead.records == plain.records);
    CHECK(ahead.offset == plain.offset);
    CHECK(ahead.message == plain.message);
}

/// A sink that throws after 100 records.
struct ThrowingSink final : memlab::trace::GenericSink<ThrowingSink> {
    template <typename Record>
    void take(const Record& /*record*/) {
        if (++records == 100) {
            throw std::runtime_error("enough");
        }
    }
    int records = 0;
};

}  // namespace

TEST_CASE("reading ahead delivers the same records in the same order") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const TemporaryFolder wild;
        check_same(written(wild, WildRecords::make(seed, 20000, true)));
        const TemporaryFolder plausible;
        check_same(written(plausible, PlausibleRecords::make(seed, 20000)));
    }
}

TEST_CASE("reading ahead ends where reading does: cut off, damaged, empty, no log, no file") {
    const TemporaryFolder folder;
    const std::string path = written(folder, PlausibleRecords::make(1, 20000));
    const std::vector<std::uint8_t> whole = read_file(path);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{5}, std::size_t{100}, whole.size() / 3, whole.size() - 1}) {
        write_file(path, {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
        check_same(path);
    }
    std::vector<std::uint8_t> damaged = whole;
    damaged[damaged.size() / 2] ^= 1;
    write_file(path, damaged);
    check_same(path);
    write_file(path, {'n', 'o', 'n', 'e'});
    check_same(path);
    check_same(folder / "missing");
}

TEST_CASE("where every processor has a log of its own, each is read as a whole") {
    const TemporaryFolder folder;
    const std::string path = written(folder, PlausibleRecords::make(3, 20000));
    Recording expected;
    read_log(path, expected);
    const std::size_t count = 4 * std::max(std::thread::hardware_concurrency(), 1U);
    std::vector<Recording> found(count);
    std::vector<std::uint64_t> events(count);
    memlab::report::for_each_in_parallel(count, [&](std::size_t i) {
        read_log_ahead(path, found[i]);
        memlab::trace::Aggregator figures;
        read_log_ahead(path, figures);
        events[i] = figures.event_count();
    });
    memlab::trace::Aggregator alone;
    feed(expected.records, alone);
    for (std::size_t i = 0; i < count; ++i) {
        CHECK(difference(found[i].records, expected.records) == nothing);
        CHECK(events[i] == alone.event_count());
    }
}

TEST_CASE("a sink that has seen enough stops the reading") {
    const TemporaryFolder folder;
    const std::string path = written(folder, PlausibleRecords::make(1, 100'000));
    ThrowingSink sink;
    CHECK_THROWS_AS(read_log_ahead(path, sink), std::runtime_error);
    CHECK(sink.records == 100);
}

TEST_CASE("what is wrong with a log is a sentence") {
    LogReadResult read;
    read.status = LogStatus::damaged;
    read.records = 1;
    const auto warning = [&](const std::string& message) {
        read.message = "a/log: " + message;
        return memlab::report::describe_reading("a/log", read).warning;
    };
    CHECK(warning("damaged at byte 5: no such record") ==
          "The event log is damaged at byte 5: no such record.");
    CHECK(warning("was overwritten by its process while it was read; read it again") ==
          "The event log was overwritten by its process while it was read; read it again.");
    CHECK(warning("cannot be read beyond byte 5: Input/output error") ==
          "The event log cannot be read beyond byte 5: Input/output error.");
}
