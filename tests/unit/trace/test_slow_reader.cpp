// A reader of a ring whose writer is faster, in whatever it does: it ends, and what it delivers is
// right, or it says that it is not.
#include <fcntl.h>
#include <unistd.h>

#include <optional>

#include "model/json_writer.hpp"
#include "tests/catch.hpp"
#include "tests/cli/ring_log.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_writer.hpp"
#include "trace/reading/log_reader.hpp"
#include "trace/reading/log_tail.hpp"

using namespace memlab::test;
using namespace memlab::trace;
using memlab::model::report_to_string;

namespace {

/// Adds up what is read, while some records more are written for each.
class WritesMeanwhile final : public GenericSink<WritesMeanwhile> {
  public:
    WritesMeanwhile(const Records& records, LogWriter& writer)
        : records_(records), writer_(writer), log_(writer) {}

    template <typename Record>
    void take(const Record& record) {
        figures->on(record);
        if (random_.one_in(1000)) {
            pace_ = random_.one_in(3) ? 0 : random_.below(12);
        }
        write(pace_);
    }
    void write(std::size_t count) {
        for (; count != 0 && at_ != records_.size(); --count, ++at_) {
            feed(records_[at_], log_);
            if (at_ + 1 == records_.size()) {
                writer_.close();
            }
        }
    }
    bool is_done() const { return at_ == records_.size(); }
    void begin_again(std::uint64_t seed) {
        figures.emplace();
        random_ = Random(seed);
        pace_ = random_.below(12);
    }

    std::optional<Aggregator> figures{std::in_place};

  private:
    const Records& records_;
    LogWriter& writer_;
    RingLog log_;
    Random random_{1};
    std::size_t pace_ = 1;
    std::size_t at_ = 0;
};

constexpr std::uint64_t fast_limit = std::uint64_t{6} << 20;

}  // namespace

TEST_CASE("a ring that is overwritten while it is read is not taken for whole", "[slow reader]") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const auto part = GENERATE(LogPart::sums, LogPart::everything);
    CAPTURE(static_cast<int>(part));
    const Records records = PlausibleRecords::make(50, 1000000, true);
    auto created = LogWriter::create(path, fast_limit);
    REQUIRE(created.writer != nullptr);
    WritesMeanwhile sink(records, *created.writer);
    sink.write(300000);
    int overwritten = 0;
    int whole = 0;
    for (std::uint64_t seed = 0; !sink.is_done(); ++seed) {
        CAPTURE(seed);
        sink.begin_again(seed);
        const LogReadResult read = read_log(path, sink, nullptr, part);
        CAPTURE(read.message);
        if (read.status == LogStatus::damaged) {
            CHECK(read.message.find("was overwritten by its process while it was read") !=
                  std::string::npos);
            ++overwritten;
            continue;
        }
        const std::string text = report_to_string(*sink.figures);
        Aggregator prefix;
        bool found = false;
        for (const AnyRecord& record : records) {
            feed(record, prefix);
            if (prefix.event_count() > sink.figures->event_count()) {
                break;
            }
            if (prefix.event_count() == sink.figures->event_count()) {
                found = found || report_to_string(prefix) == text;
            }
        }
        CHECK(found);
        ++whole;
    }
    CHECK(whole != 0);
    CHECK(overwritten + whole > 1);
}

TEST_CASE("a log is followed beside a faster writer to its end", "[slow reader]") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const auto part = GENERATE(LogPart::sums, LogPart::everything);
    CAPTURE(static_cast<int>(part));
    const Records records = PlausibleRecords::make(51, 1000000, true);
    Aggregator whole;
    for (const AnyRecord& record : records) {
        feed(record, whole);
    }
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        CAPTURE(seed);
        auto created = LogWriter::create(path, fast_limit);
        REQUIRE(created.writer != nullptr);
        WritesMeanwhile sink(records, *created.writer);
        sink.begin_again(seed);
        sink.write(100000);
        const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        LogTail tail(descriptor, path, sink, part);
        LogStatus status = LogStatus::cut_off;
        for (int looks = 0; looks < 10000 && status == LogStatus::cut_off; ++looks) {
            status = tail.read().status;
            sink.write(seed % 2 == 0 ? 1000 : 100000);
        }
        CAPTURE(tail.laps(), tail.read().message);
        CHECK(status == LogStatus::complete);
        CHECK(created.writer->stopped_because() == nothing);
        CHECK((report_to_string(*sink.figures) == report_to_string(whole)));
        close(descriptor);
        unlink(path.c_str());
    }
}
