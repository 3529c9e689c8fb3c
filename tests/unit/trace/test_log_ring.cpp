// The log as a flight recorder: at its limit it keeps its beginning and its newest part, and
// checkpoints with which the figures of the whole recording are exact, whenever it is killed.
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "model/json_writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_writer.hpp"
#include "trace/reading/log_reader.hpp"

using namespace memlab::test;
using namespace memlab::trace;
using memlab::model::report_to_string;

namespace {

constexpr std::uint64_t small_limit = std::uint64_t{6} << 20;

/// Writes a log and gives it the checkpoints that it wants, a block after every `pace` records.
class RingRecorder {
  public:
    RingRecorder(const std::string& path, std::uint64_t limit,
                 LogStorage storage = LogStorage::automatic, std::size_t pace = 20)
        : pace_(pace) {
        writer_ = std::move(LogWriter::create(path, limit, storage).writer);
        REQUIRE(writer_ != nullptr);
    }

    void on(const AnyRecord& record) {
        feed(record, *writer_);
        feed(record, aggregator_);
        if (++count_ % pace_ == 0) {
            continue_checkpoint();
        }
    }

    LogWriter& writer() { return *writer_; }
    std::string report() const { return report_to_string(aggregator_); }
    std::uint64_t checkpoints() const { return checkpoints_; }

  private:
    void continue_checkpoint() {
        if (blocks_ == nullptr) {
            if (!writer_->wants_checkpoint()) {
                return;
            }
            blocks_ = writer_->begin_checkpoint();
            aggregator_.checkpoint(*blocks_);
            blocks_->finish();
            next_ = 0;
        }
        switch (writer_->append_checkpoint(*blocks_, next_)) {
            case LogWriter::CheckpointStep::more:
                ++next_;
                break;
            case LogWriter::CheckpointStep::later:
                usleep(1000);
                break;
            case LogWriter::CheckpointStep::complete:
                blocks_.reset();
                ++checkpoints_;
                break;
        }
    }

    std::size_t pace_;
    std::unique_ptr<LogWriter> writer_;
    Aggregator aggregator_;
    std::unique_ptr<CheckpointBlocks> blocks_;
    std::size_t next_ = 0;
    std::size_t count_ = 0;
    std::uint64_t checkpoints_ = 0;
};

void feed_some(const Records& records, std::size_t from, std::size_t to, RecordSink& sink) {
    for (std::size_t i = from; i < to; ++i) {
        feed(records[i], sink);
    }
}

struct Read {
    LogReadResult result;
    std::string report;
};
Read read_back(const std::string& path, LogPart part) {
    Aggregator aggregator;
    Read read;
    read.result = read_log(path, aggregator, nullptr, part);
    read.report = report_to_string(aggregator);
    return read;
}

std::size_t kills() {
    const char* const full = std::getenv("MEMLAB_TEST_RUNS");
    return full == nullptr ? 15 : static_cast<std::size_t>(std::atoi(full));
}

}  // namespace

TEST_CASE("whatever part of a ring is read, the figures are of the whole recording") {
    const TemporaryFolder folder;
    const auto storage = GENERATE(LogStorage::automatic, LogStorage::write_behind);
    CAPTURE(static_cast<int>(storage));
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
        CAPTURE(seed);
        const std::string path = folder / ("log" + std::to_string(seed));
        Records records = PlausibleRecords::make(seed, 900000, seed != 1);
        RingRecorder recorder(path, small_limit, storage);
        for (const AnyRecord& record : records) {
            recorder.on(record);
        }
        CHECK(recorder.checkpoints() > 8);
        CHECK(recorder.writer().stopped_because() == nothing);
        recorder.writer().close();
        CHECK(std::filesystem::file_size(path) <= small_limit);
        const Read sums = read_back(path, LogPart::sums);
        CHECK(sums.result.status == (seed != 1 ? LogStatus::complete : LogStatus::cut_off));
        REQUIRE(sums.report == recorder.report());
        const Read everything = read_back(path, LogPart::everything);
        CHECK(everything.result.status == sums.result.status);
        REQUIRE(everything.report == recorder.report());
        REQUIRE(everything.result.gap);
        CHECK(everything.result.gap->from_ns < everything.result.gap->to_ns);
        REQUIRE(sums.result.gap);
        CHECK(sums.result.gap->from_ns == everything.result.gap->from_ns);
        CHECK(sums.result.gap->to_ns == everything.result.gap->to_ns);
        CHECK(everything.result.records > sums.result.records);

        // The beginning and the end are there record by record.
        Recording back;
        read_log(path, back, nullptr, LogPart::beginning);
        CHECK(back.records.size() > 20000);
        CHECK(is_prefix(back.records, records));
        Recording all;
        read_log(path, all);
        const auto last_state = std::find_if(
            all.records.rbegin(), all.records.rend(),
            [](const AnyRecord& record) { return std::holds_alternative<AggregateState>(record); });
        const Records tail(last_state.base(), all.records.end());
        CHECK(tail.size() > 40000);
        REQUIRE(tail.size() < records.size());
        CHECK(difference(tail, {records.end() - static_cast<std::ptrdiff_t>(tail.size()),
                                records.end()}) == nothing);
    }
}

TEST_CASE("a ring that was not filled yet is a log without a gap") {
    const TemporaryFolder folder;
    const std::size_t count = GENERATE(10, 100000, 250000);
    const Records records = PlausibleRecords::make(5, count, true);
    RingRecorder recorder(folder / "log", std::uint64_t{12} << 20);
    for (const AnyRecord& record : records) {
        recorder.on(record);
    }
    recorder.writer().close();
    Recording back;
    const LogReadResult result = read_log(folder / "log", back);
    CHECK(result.status == LogStatus::complete);
    CHECK_FALSE(result.gap);
    CHECK(difference(back.records, records) == nothing);
    CHECK(read_back(folder / "log", LogPart::sums).report == recorder.report());
}

TEST_CASE("without checkpoints a log stops at its limit, and says so") {
    const TemporaryFolder folder;
    const Records records = PlausibleRecords::make(6, 700000, false);
    auto created = LogWriter::create(folder / "log", small_limit);
    for (const AnyRecord& record : records) {
        feed(record, *created.writer);
    }
    CHECK(created.writer->stopped_because().find("MEMLAB_LOG_LIMIT") != std::string::npos);
    const std::uint64_t dropped = created.writer->events_dropped();
    CHECK(dropped > 1000);
    created.writer->close();
    Recording back;
    const LogReadResult result = read_log(folder / "log", back);
    CHECK(result.status == LogStatus::cut_off);
    REQUIRE(back.stopped);
    CHECK(back.stopped->events_dropped == dropped);
    CHECK(is_prefix(back.records, records));
    CHECK(back.records.size() > 200000);
}

TEST_CASE("a limit that is too small for checkpoints stops the log as without them") {
    const TemporaryFolder folder;
    const Records records = WildRecords::make(7, 120000, false);
    RingRecorder recorder(folder / "log", std::uint64_t{2200} << 10);
    for (const AnyRecord& record : records) {
        recorder.on(record);
    }
    CHECK(recorder.writer().stopped_because().find("checkpoints of") != std::string::npos);
    recorder.writer().close();
    Recording back;
    read_log(folder / "log", back);
    CHECK(back.stopped);
    CHECK(is_prefix(back.records, records));
    CHECK(LogRing::plan(std::uint64_t{1} << 20).regions == 0);
    CHECK(LogRing::plan(0).regions == 0);
}

TEST_CASE("a ring that was cut or damaged anywhere is never read as something else") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const Records records = PlausibleRecords::make(8, 900000, false);
    RingRecorder recorder(path, small_limit);
    for (const AnyRecord& record : records) {
        recorder.on(record);
    }
    recorder.writer().close();
    const std::vector<std::uint8_t> whole = read_file(path);
    const std::string expected = recorder.report();
    const auto report = [](const std::vector<std::uint8_t>& bytes, LogStatus* status) {
        Aggregator aggregator;
        *status = read_log(bytes.data(), bytes.size(), aggregator, LogPart::sums).status;
        return report_to_string(aggregator);
    };
    LogStatus status{};
    REQUIRE(report(whole, &status) == expected);
    Random random(9);
    std::size_t exact = 0;
    for (int i = 0; i < 60; ++i) {
        CAPTURE(i);
        std::vector<std::uint8_t> bytes = whole;
        if (i % 2 == 0) {
            bytes.resize(random.below(bytes.size()));
        } else {
            bytes[32 + random.below(bytes.size() - 32)] ^= 1;
        }
        const bool same = report(bytes, &status) == expected;
        exact += same ? 1 : 0;
        if (!same) {
            // Some of the recording: figures of an earlier moment.
            Aggregator less;
            read_log(bytes.data(), bytes.size(), less, LogPart::sums);
            CHECK(less.event_count() <= 2 * records.size());
            CHECK_FALSE(less.integrity().incomplete);
        }
    }
    CHECK(exact > 10);  // what is not of the newest part does not matter to the figures
}

// MEMLAB_TEST_RUNS=1000 in the full run.
TEST_CASE("a ring of a killed process has the exact figures of all that was recorded", "[kill]") {
    const TemporaryFolder folder;
    const Records records = PlausibleRecords::make(11, 1000000, false);
    void* const memory = mmap(nullptr, sizeof(std::atomic<std::uint64_t>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto& appended = *new (memory) std::atomic<std::uint64_t>(0);
    std::size_t in_ring = 0;
    for (std::size_t kill_number = 0; kill_number < kills(); ++kill_number) {
        CAPTURE(kill_number);
        Random random(kill_number);
        const std::string path = folder / "log";
        appended = 0;
        const std::uint64_t goal = random.below(records.size() * 9 / 10);
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            RingRecorder recorder(path, small_limit, LogStorage::automatic, 1 + random.below(100));
            for (const AnyRecord& record : records) {
                recorder.on(record);
                appended.fetch_add(1);
            }
            _exit(2);
        }
        int status = 0;
        while (appended.load() < goal && waitpid(child, &status, WNOHANG) == 0) {
            sched_yield();
        }
        kill(child, SIGKILL);
        REQUIRE(waitpid(child, &status, 0) == child);
        const std::uint64_t count = appended.load();
        if (std::filesystem::exists(path)) {
            const Read sums = read_back(path, LogPart::sums);
            REQUIRE(sums.result.status == LogStatus::cut_off);
            // The record that was being written may be there or not.
            Aggregator expected;
            feed_some(records, 0, count, expected);
            if (sums.report != report_to_string(expected)) {
                feed_some(records, count, count + 1, expected);
                REQUIRE(sums.report == report_to_string(expected));
            }
            const Read everything = read_back(path, LogPart::everything);
            REQUIRE(everything.report == sums.report);
            REQUIRE(everything.result.gap.has_value() == sums.result.gap.has_value());
            if (sums.result.gap) {
                CHECK(sums.result.gap->from_ns == everything.result.gap->from_ns);
                CHECK(sums.result.gap->to_ns == everything.result.gap->to_ns);
            }
            in_ring += everything.result.gap ? 1 : 0;
            std::filesystem::remove(path);
        }
    }
    munmap(memory, sizeof(std::atomic<std::uint64_t>));
    CHECK(in_ring > kills() / 4);
}

TEST_CASE("a full disk or a lowered limit stops a ring where it is") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const Records records = PlausibleRecords::make(12, 400000, false);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        RingRecorder recorder(path, std::uint64_t{12} << 20);
        const rlimit limit{std::uint64_t{5} << 20, std::uint64_t{5} << 20};
        for (std::size_t i = 0; i < records.size(); ++i) {
            if (i == 1000) {
                setrlimit(RLIMIT_FSIZE, &limit);
            }
            recorder.on(records[i]);
        }
        recorder.writer().close();
        _exit(recorder.writer().stopped_because().find("RLIMIT_FSIZE") == std::string::npos);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    Recording back;
    const LogReadResult result = read_log(path, back);
    CHECK(result.status == LogStatus::cut_off);
    CHECK(back.stopped);
    CHECK(is_prefix(back.records, records));
    CHECK(back.records.size() > 100000);
}
