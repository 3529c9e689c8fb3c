// A log that is read while it is written: at each moment the figures are those of reading it whole.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

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

/// Is called while a part of a write to a file is done, and when it is. Null: nobody is.
std::atomic<void (*)()> during_writes = nullptr;

}  // namespace

/// What a writer's thread calls. A write is not atomic for those who read the file meanwhile.
extern "C" ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
    const auto put = [&](size_t from, size_t to) {
        return syscall(SYS_pwrite64, descriptor, static_cast<const char*>(data) + from, to - from,
                       offset + static_cast<off_t>(from));
    };
    void (*const look)() = during_writes.load();
    if (look == nullptr) {
        return put(0, size);
    }
    for (size_t from = 0; from < size;) {
        const size_t to = from + (size - from + 1) / 2;
        if (put(from, to) != static_cast<ssize_t>(to - from)) {
            return -1;
        }
        from = to;
        look();
    }
    return static_cast<ssize_t>(size);
}

namespace {

constexpr std::uint64_t ring_limit = std::uint64_t{6} << 20;

/// A log that is followed, and its figures.
class Followed {
  public:
    explicit Followed(const std::string& path, LogPart part = LogPart::sums)
        : path_(path),
          part_(part),
          descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)),
          tail_(descriptor_, path, figures_, part) {}
    ~Followed() { close(descriptor_); }
    Followed(const Followed&) = delete;
    Followed& operator=(const Followed&) = delete;

    const LogReadResult& read() { return tail_.read(); }
    LogTail& tail() { return tail_; }
    int descriptor() const { return descriptor_; }
    std::string report() const { return report_to_string(figures_); }

    /// Reads what is new, and compares with reading all of it.
    void check_against_whole() {
        const LogReadResult& read = tail_.read();
        Aggregator figures;
        const LogReadResult whole = read_log(path_, figures, nullptr, part_);
        CAPTURE(whole.message);
        REQUIRE(read.status == whole.status);
        REQUIRE(read.has_ring == whole.has_ring);
        REQUIRE(report() == report_to_string(figures));
        if (part_ == LogPart::sums) {
            REQUIRE(read.lacks_events == whole.lacks_events);
            REQUIRE(read.gap.has_value() == whole.gap.has_value());
            if (read.gap) {
                REQUIRE(read.gap->from_ns == whole.gap->from_ns);
                REQUIRE(read.gap->to_ns == whole.gap->to_ns);
            }
        } else {
            // It has what was overwritten since.
            REQUIRE(read.gap.has_value() == (tail_.laps() != 0));
        }
    }

  private:
    std::string path_;
    LogPart part_;
    Aggregator figures_;
    int descriptor_;
    LogTail tail_;
};

/// Writes a record for each that is read: a reader never comes to the end of its log.
class SteadyWriter final : public GenericSink<SteadyWriter> {
  public:
    SteadyWriter(const Records& records, RecordSink& log) : records_(records), log_(log) {}

    template <typename Record>
    void take(const Record& /*record*/) {
        write(1);
    }
    void write(std::size_t count) {
        for (; count != 0 && !is_done(); --count, ++at_) {
            feed(records_[at_], log_);
        }
    }
    bool is_done() const { return at_ == records_.size(); }

  private:
    const Records& records_;
    RecordSink& log_;
    std::size_t at_ = 0;
};

void append(const std::string& path, const std::vector<std::uint8_t>& bytes, std::size_t from,
            std::size_t to) {
    std::ofstream file(path, std::ios::binary | std::ios::app);
    file.write(reinterpret_cast<const char*>(bytes.data() + from),
               static_cast<std::streamsize>(to - from));
}

}  // namespace

TEST_CASE("a log that grows by any bytes is read as if it were read whole each time", "[tail]") {
    const TemporaryFolder folder;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        CAPTURE(seed);
        const Records records = seed % 2 == 0 ? WildRecords::make(seed, 4000, true)
                                              : PlausibleRecords::make(seed, 30000, seed != 3);
        const std::string source = folder / ("source" + std::to_string(seed));
        const std::string path = folder / ("log" + std::to_string(seed));
        auto created = LogWriter::create(source, 0);
        REQUIRE(created.writer != nullptr);
        for (const AnyRecord& record : records) {
            feed(record, *created.writer);
        }
        created.writer->close();
        const std::vector<std::uint8_t> bytes = read_file(source);
        append(path, bytes, 0, 0);
        Followed followed(path);
        Random random(seed);
        // The first bytes one by one: also the file's header.
        for (std::size_t at = 0; at < bytes.size();) {
            const std::size_t size = at < 200 ? 1 : 1 + random.below(bytes.size() / 40);
            const std::size_t to = std::min(at + size, bytes.size());
            append(path, bytes, at, to);
            at = to;
            if (at >= format::file_header_size) {
                followed.check_against_whole();
            } else {
                CHECK(followed.read().records == 0);
            }
        }
        CHECK((followed.read().status == LogStatus::complete) == (seed != 3));
    }
}

TEST_CASE("a mapped log is followed record by record, through its ring and its checkpoints",
          "[tail]") {
    const TemporaryFolder folder;
    const auto part = GENERATE(LogPart::sums, LogPart::everything);
    CAPTURE(static_cast<int>(part));
    bool lapped = false;
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
        CAPTURE(seed);
        const std::string path = folder / ("log" + std::to_string(seed));
        const Records records = PlausibleRecords::make(seed + 20, 900000, seed != 1);
        auto created = LogWriter::create(path, ring_limit);
        REQUIRE(created.writer != nullptr);
        RingLog log(*created.writer);
        std::optional<Followed> followed(std::in_place, path, part);
        Random random(seed);
        for (std::size_t at = 0; at < records.size();) {
            // Mostly less than a region; a few times more than the ring.
            const std::size_t most = random.below(8) == 0 ? 700000 : 30000;
            const std::size_t to = std::min(at + 1 + random.below(most), records.size());
            for (; at < to; ++at) {
                feed(records[at], log);
            }
            CAPTURE(at);
            followed->check_against_whole();
            lapped = lapped || followed->tail().laps() != 0;
            if (random.below(15) == 0) {
                followed.emplace(path, part);  // one that begins in the middle
                followed->check_against_whole();
            }
        }
        created.writer->close();
        followed->check_against_whole();
        CHECK(followed->read().status == (seed != 1 ? LogStatus::complete : LogStatus::cut_off));
    }
    CHECK(lapped);
}

TEST_CASE("a writer that waits for nobody is followed to its end", "[tail]") {
    const TemporaryFolder folder;
    const auto storage = GENERATE(LogStorage::automatic, LogStorage::write_behind);
    CAPTURE(static_cast<int>(storage));
    const Records records = PlausibleRecords::make(29, 900000, true);
    for (const LogPart part : {LogPart::sums, LogPart::everything}) {
        CAPTURE(static_cast<int>(part));
        const std::string path = folder / ("log" + std::to_string(static_cast<int>(part)));
        auto created = LogWriter::create(path, ring_limit, storage);
        REQUIRE(created.writer != nullptr);
        std::thread writing([&] {
            RingLog log(*created.writer);
            for (const AnyRecord& record : records) {
                feed(record, log);
            }
            created.writer->close();
        });
        Followed followed(path, part);
        std::uint64_t reads = 0;
        while (followed.read().status == LogStatus::cut_off && reads < 100000) {
            usleep(reads++ % 50 == 49 ? 20000 : 200);
        }
        writing.join();
        CAPTURE(followed.tail().laps(), followed.read().message);
        CHECK(followed.read().status == LogStatus::complete);
        followed.check_against_whole();
    }
}

TEST_CASE("a write that is half done is read as if it were not there", "[tail]") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const auto part = GENERATE(LogPart::sums, LogPart::everything);
    CAPTURE(static_cast<int>(part));
    static const Records records = PlausibleRecords::make(35, 700000, true);
    auto created = LogWriter::create(path, ring_limit, LogStorage::write_behind);
    REQUIRE(created.writer != nullptr);
    RingLog log(*created.writer);
    Followed followed(path, part);
    static Followed* reader = nullptr;
    static std::atomic<std::uint64_t> looks = 0;
    static std::atomic<std::uint64_t> wrong = 0;
    reader = &followed;
    looks = wrong = 0;
    during_writes = +[] {
        const LogStatus status = reader->read().status;
        wrong += status == LogStatus::cut_off || status == LogStatus::complete ? 0 : 1;
        ++looks;
    };
    Random random(7);
    for (std::size_t at = 0; at < records.size();) {
        // Now and then more than the thread writes with one call.
        const std::size_t to = std::min(at + (random.below(8) == 0 ? 40000 : 2000), records.size());
        const std::uint64_t before = looks;
        for (; at < to; ++at) {
            feed(records[at], log);
        }
        while (looks == before && created.writer->events_dropped() == 0) {
            usleep(200);  // else its buffer may be full
        }
    }
    created.writer->close();
    during_writes = nullptr;
    CHECK(wrong == 0);
    CHECK(followed.read().status == LogStatus::complete);
    CHECK(created.writer->events_dropped() == 0);
    Aggregator whole;
    for (const AnyRecord& record : records) {
        feed(record, whole);
    }
    CHECK(followed.report() == report_to_string(whole));
}

TEST_CASE("who reads the count of what was dropped never sees more than that", "[tail]") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    static int descriptor;
    static off_t at;
    static std::uint64_t begun;
    static std::uint64_t looks;
    static std::uint64_t too_much;
    begun = looks = too_much = 0;
    auto created = LogWriter::create(path, 0, LogStorage::write_only);
    REQUIRE(created.writer != nullptr);
    LogWriter& writer = *created.writer;
    writer.stop_as({.time_ns = 1, .reason = "a reason", .events_dropped = 0});
    descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(descriptor >= 0);
    at = static_cast<off_t>(writer.bytes_written() - sizeof(std::uint64_t));
    during_writes = +[] {
        std::uint64_t seen = 0;
        ++looks;
        too_much += pread(descriptor, &seen, sizeof seen, at) != sizeof seen || seen > begun;
    };
    const Event dropped{.type = EventType::mark};
    for (begun = 1; begun <= 70000; ++begun) {
        writer.on(dropped);
    }
    during_writes = nullptr;
    close(descriptor);
    CHECK(looks > 30);
    CHECK(too_much == 0);
}

TEST_CASE("a look at a log ends beside a writer that never rests", "[tail]") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const auto part = GENERATE(LogPart::sums, LogPart::everything);
    const std::uint64_t limit = GENERATE(std::uint64_t{2} << 20, std::uint64_t{0});
    CAPTURE(static_cast<int>(part), limit);
    static const Records records = PlausibleRecords::make(34, 1500000, false);
    auto created = LogWriter::create(path, limit);
    REQUIRE(created.writer != nullptr);
    RingLog log(*created.writer);
    SteadyWriter writer(records, log);
    writer.write(150000);
    SECTION("that is followed") {
        const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        {
            LogTail tail(descriptor, path, writer, part);
            CHECK(tail.read().status == LogStatus::cut_off);
            CHECK(tail.read().status == LogStatus::cut_off);
        }
        close(descriptor);
    }
    SECTION("that is read at once") {
        CHECK(read_log(path, writer, nullptr, part).records != 0);
    }
    CHECK_FALSE(writer.is_done());
}

TEST_CASE("following costs what is new", "[tail]") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const Records records = PlausibleRecords::make(30, 1001000, false);
    auto created = LogWriter::create(path, std::uint64_t{1} << 30);
    REQUIRE(created.writer != nullptr);
    std::size_t at = 0;
    for (; at + 1000 < records.size(); ++at) {
        feed(records[at], *created.writer);
    }
    Followed followed(path);
    const std::uint64_t first = followed.read().records;
    const std::uint64_t bytes = followed.tail().bytes_read();
    CHECK(first >= 1000000);
    for (; at < records.size(); ++at) {
        feed(records[at], *created.writer);
    }
    const std::uint64_t second = followed.read().records - first;
    CHECK(second >= 1000);
    CHECK(second <= 2000);  // a free and its completion count as two
    // The new records, and what the window reads beyond them.
    CHECK(followed.tail().bytes_read() - bytes < std::uint64_t{256} << 10);
    const std::uint64_t before = followed.tail().bytes_read();
    CHECK(followed.read().records == first + second);
    CHECK(followed.tail().bytes_read() - before <= std::uint64_t{128} << 10);
    followed.check_against_whole();
}

TEST_CASE("a log that stops at its limit keeps counting what it lacks", "[tail]") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const Records records = PlausibleRecords::make(31, 700000, false);
    auto created = LogWriter::create(path, ring_limit);
    REQUIRE(created.writer != nullptr);
    Followed followed(path);
    for (std::size_t at = 0; at < records.size(); ++at) {
        feed(records[at], *created.writer);
        if (at % 50000 == 0) {
            followed.check_against_whole();
        }
    }
    CHECK(created.writer->events_dropped() > 1000);
    followed.check_against_whole();
}

TEST_CASE("what is no log, or of another version, is said once", "[tail]") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    SECTION("no log") {
        std::ofstream(path) << "{\"format\": \"memlab-report\"}";
        Followed followed(path);
        CHECK(followed.read().status == LogStatus::not_a_log);
        CHECK(followed.read().message.find("is not a memlab event log") != std::string::npos);
    }
    SECTION("another version") {
        std::vector<std::uint8_t> header(16);
        std::memcpy(header.data(), format::magic, sizeof format::magic);
        header[8] = 1;
        append(path, header, 0, header.size());
        Followed followed(path);
        CHECK(followed.read().status == LogStatus::other_version);
        CHECK(followed.read().message.find("format version 1") != std::string::npos);
    }
    SECTION("damage") {
        std::vector<std::uint8_t> bytes;
        {
            auto created = LogWriter::create(folder / "source", 0);
            for (const AnyRecord& record : PlausibleRecords::make(32, 30000, true)) {
                feed(record, *created.writer);
            }
            created.writer->close();
            bytes = read_file(folder / "source");
        }
        bytes[bytes.size() / 2] ^= 1;
        append(path, bytes, 0, bytes.size());
        Followed followed(path);
        CHECK(followed.read().status == LogStatus::damaged);
        const std::uint64_t records = followed.read().records;
        CHECK(records != 0);
        append(path, bytes, 0, bytes.size());
        CHECK(followed.read().records == records);
    }
    SECTION("a file that can no longer be read") {
        auto created = LogWriter::create(path, 0);
        const Records records = PlausibleRecords::make(33, 1000, false);
        for (const AnyRecord& record : records) {
            feed(record, *created.writer);
        }
        Followed followed(path);
        CHECK(followed.read().status == LogStatus::cut_off);
        CHECK(followed.tail().error() == 0);
        const int other = open("/", O_RDONLY | O_CLOEXEC);
        REQUIRE(dup2(other, followed.descriptor()) >= 0);
        close(other);
        followed.read();
        CHECK(followed.tail().error() == EISDIR);
    }
}
