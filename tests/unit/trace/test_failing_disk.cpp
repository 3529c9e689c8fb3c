// An event log whose disk fails: any call that changes the file may fail, once or from then on, or
// do half of what it was asked. This program's own functions take the place of the C library's.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "model/json_writer.hpp"
#include "tests/catch.hpp"
#include "tests/cli/ring_log.hpp"
#include "tests/support/thorough.hpp"
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

/// Of the smallest ring: far more than that waits for a thread to write it.
constexpr std::uint64_t ring_limit = std::uint64_t{2} << 20;

constexpr int never = std::numeric_limits<int>::max();

/// How the disk behaves. Set while no log is written.
struct Disk {
    std::atomic<int> until_fault = never;  ///< so many calls succeed
    std::atomic<int> faults = never;       ///< so many calls fail then
    std::atomic<int> error = ENOSPC;
    std::atomic<bool> half = false;         ///< the first that fails does a part
    std::atomic<bool> only_writes = false;  ///< all else succeeds
    std::atomic<bool> silent = false;       ///< what fails seems to succeed: a kill at that moment
    std::atomic<bool> stalled = false;      ///< no write ends
    std::atomic<bool> holds_a_write = false;
    std::atomic<off_t> unreadable = -1;  ///< the byte there
    std::atomic<bool> maps = true;       ///< memory can be mapped
    std::atomic<bool> truncates = true;  ///< files can be cut
    std::atomic<std::uint64_t> writes = 0;
};
Disk disk;

enum class Fate : std::uint8_t { good, half, bad };

Fate fate_of_call(bool is_write) {
    if (is_write) {
        ++disk.writes;
        while (disk.stalled) {
            disk.holds_a_write = true;
            disk.stalled.wait(true);
        }
    }
    if (disk.until_fault == never || (disk.only_writes && !is_write)) {
        return Fate::good;
    }
    const int left = disk.until_fault.fetch_sub(1);
    if (left > 0 || left <= -disk.faults) {
        return Fate::good;
    }
    errno = disk.error;
    return left == 0 && disk.half ? Fate::half : Fate::bad;
}

}  // namespace

extern "C" ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
    const Fate fate = fate_of_call(true);
    const auto all = static_cast<ssize_t>(size);
    if (fate == Fate::bad) {
        return disk.silent ? all : -1;
    }
    const ssize_t done =
        syscall(SYS_pwrite64, descriptor, data,
                fate == Fate::half ? std::max<size_t>(size * 3 / 7, 1) : size, offset);
    return disk.silent ? all : done;
}

extern "C" ssize_t pread(int descriptor, void* data, size_t size, off_t offset) {
    if (disk.unreadable >= offset && disk.unreadable < offset + static_cast<off_t>(size)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, descriptor, data, size, offset);
}

extern "C" int fallocate(int descriptor, int mode, off_t offset, off_t size) {
    return fate_of_call(false) != Fate::good
               ? -1
               : static_cast<int>(syscall(SYS_fallocate, descriptor, mode, offset, size));
}

extern "C" int ftruncate(int descriptor, off_t size) noexcept {
    if (!disk.truncates) {
        errno = EIO;
        return -1;
    }
    return fate_of_call(false) != Fate::good
               ? disk.silent ? 0 : -1
               : static_cast<int>(syscall(SYS_ftruncate, descriptor, size));
}

extern "C" void* mmap(void* address, size_t size, int protection, int flags, int descriptor,
                      off_t offset) noexcept {
    const bool is_of_log = (descriptor >= 0 && (protection & PROT_WRITE) != 0) ||
                           (descriptor < 0 && size == WriteBehind::mapping_size);
    if (is_of_log && (!disk.maps || fate_of_call(false) != Fate::good)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return reinterpret_cast<void*>(
        syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
}

namespace {

/// What was held up by a disk that stalled ends.
void go_on() {
    disk.stalled = false;
    disk.stalled.notify_all();
}

/// Passes on what the log itself does not add.
class ReadFigures final : public GenericSink<ReadFigures> {
  public:
    template <typename Record>
    void take(const Record& record) {
        all.on(record);
        if constexpr (!std::same_as<Record, LogStopped> && !std::same_as<Record, End>) {
            recorded.on(record);
        }
    }

    Aggregator all;
    Aggregator recorded;
};

/// The figures of a recording's parts, from its start to any record.
class Reference {
  public:
    explicit Reference(const Records& records) : records_(records) {
        for (const AnyRecord& record : records) {
            feed(record, whole_);
        }
    }

    std::uint64_t events() const { return whole_.event_count(); }

    /// Whether they are those of its first records, up to any.
    bool has(const Aggregator& figures) const {
        const std::string text = report_to_string(figures);
        Aggregator part;
        for (const AnyRecord& record : records_) {
            if (part.event_count() == figures.event_count() && report_to_string(part) == text) {
                return true;
            }
            if (part.event_count() > figures.event_count()) {
                return false;
            }
            if (!std::holds_alternative<End>(record)) {
                feed(record, part);
            }
        }
        return report_to_string(part) == text;
    }

  private:
    const Records& records_;
    Aggregator whole_;
};

/// Checks what a disk that failed has left.
void check_log(const std::string& path, const LogWriter& writer, const Reference& reference) {
    for (const LogPart part : {LogPart::sums, LogPart::everything}) {
        CAPTURE(static_cast<int>(part));
        ReadFigures figures;
        const LogReadResult read = read_log(path, figures, nullptr, part);
        CAPTURE(read.message, writer.stopped_because(), writer.incomplete_because());
        if (std::filesystem::file_size(path) == 0) {  // the first write failed, of the header
            CHECK(read.status == LogStatus::not_a_log);
            CHECK(writer.stopped_because() != "");
            continue;
        }
        CHECK((read.status == LogStatus::complete || read.status == LogStatus::cut_off));
        const std::uint64_t seen = figures.all.event_count();
        const std::uint64_t dropped = figures.all.end().events_dropped;
        CHECK(reference.has(figures.recorded));
        CAPTURE(seen, dropped, reference.events());
        if (read.status == LogStatus::complete) {
            CHECK(seen + dropped == reference.events());
            CHECK((dropped == 0) == figures.all.end().log_stopped_because.empty());
        } else {
            CHECK(seen + dropped <= reference.events());
        }
        // Else it would be thought to have everything, and may be removed.
        if (read.status != LogStatus::complete || dropped != 0) {
            CHECK(writer.stopped_because() + writer.incomplete_because() != "");
        }
    }
}

}  // namespace

TEST_CASE("whatever fails on a disk, the log is a part of the recording and says so") {
    const TemporaryFolder folder;
    static constexpr int errors[] = {ENOSPC, EIO, EDQUOT, EFBIG, EINTR, ENOMEM, EOPNOTSUPP};
    const Records records = PlausibleRecords::make(40, 260000, true);
    const Reference reference(records);
    const auto storage =
        GENERATE(LogStorage::automatic, LogStorage::write_behind, LogStorage::write_only);
    CAPTURE(static_cast<int>(storage));
    int faulty = 0;
    const auto runs = memlab::testing::thoroughly<std::uint64_t>(150, 8);
    for (std::uint64_t seed = 0; seed < runs; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        const std::uint64_t limit = random.one_in(3) ? 0 : ring_limit;
        const std::string path = folder / ("log" + std::to_string(seed));
        disk.error = errors[random.below(std::size(errors))];
        disk.half = random.one_in(2);
        disk.faults =
            random.one_in(2) && disk.error != EINTR ? never : 1 + static_cast<int>(random.below(3));
        disk.only_writes = random.one_in(2);
        disk.writes = 0;
        disk.until_fault = static_cast<int>(random.below(random.one_in(3) ? 20 : 2000));
        CAPTURE(limit, disk.error, disk.half, disk.faults, disk.until_fault);
        {
            auto created = LogWriter::create(path, limit, storage);
            REQUIRE(created.writer != nullptr);
            RingLog log(*created.writer);
            for (std::size_t at = 0; at < records.size();) {
                const std::size_t most = random.one_in(8) ? 100000 : 2000;
                const std::size_t to = std::min(at + 1 + random.below(most), records.size());
                const bool stalls = storage == LogStorage::write_behind && random.one_in(5);
                disk.stalled = stalls;
                const std::uint64_t before = disk.writes;
                for (; at < to; ++at) {
                    if (at + 1 == records.size() && random.one_in(2)) {
                        go_on();
                        usleep(20000);  // the end comes when a write may have failed
                    }
                    feed(records[at], log);
                }
                go_on();
                for (int i = 0; i < 100 && storage == LogStorage::write_behind &&
                                disk.writes == before && created.writer->stopped_because().empty();
                     ++i) {
                    usleep(100);
                }
            }
            created.writer->close();
            faulty += disk.until_fault < 0 ? 1 : 0;
            disk.until_fault = never;
            check_log(path, *created.writer, reference);
        }
        std::filesystem::remove(path);
    }
    CHECK(faulty > static_cast<int>(runs) / 3);
}

TEST_CASE("killed within any write of a thread, the log is a part of the recording") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const Records records = PlausibleRecords::make(44, 200000, true);
    const Reference reference(records);
    disk.faults = never;
    disk.only_writes = false;
    const auto runs = memlab::testing::thoroughly<std::uint64_t>(300, 12);
    for (std::uint64_t seed = 0; seed < runs; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        const auto storage = random.one_in(4) ? LogStorage::write_only : LogStorage::write_behind;
        const std::uint64_t limit = storage == LogStorage::write_only ? 0 : ring_limit;
        disk.half = random.one_in(2);
        disk.silent = true;
        disk.until_fault =
            static_cast<int>(random.below(storage == LogStorage::write_only ? 100000 : 400));
        CAPTURE(static_cast<int>(storage), disk.half, disk.until_fault);
        {
            auto created = LogWriter::create(path, limit, storage);
            REQUIRE(created.writer != nullptr);
            RingLog log(*created.writer);
            for (std::size_t at = 0; at < records.size() && disk.until_fault >= 0;) {
                const std::size_t to = std::min(at + 1 + random.below(2000), records.size());
                const std::uint64_t before = disk.writes;
                for (; at < to; ++at) {
                    feed(records[at], log);
                }
                for (int i = 0; i < 100 && disk.writes == before; ++i) {
                    usleep(100);
                }
            }
            created.writer->close();
        }
        disk.until_fault = never;
        disk.silent = false;
        for (const LogPart part : {LogPart::sums, LogPart::everything}) {
            CAPTURE(static_cast<int>(part));
            ReadFigures figures;
            const LogReadResult read = read_log(path, figures, nullptr, part);
            CAPTURE(read.message);
            CHECK((read.status == LogStatus::complete || read.status == LogStatus::cut_off));
            CHECK(reference.has(figures.recorded));
        }
        std::filesystem::remove(path);
    }
}

TEST_CASE("what waits for a disk that stalls may be more than the ring") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const Records records = PlausibleRecords::make(41, 200000, true);
    const Reference reference(records);
    const std::size_t chunk = GENERATE(40000, 60000);
    CAPTURE(chunk);
    const int fails_at = GENERATE(-1, 2, 3);
    CAPTURE(fails_at);
    disk.error = EIO;
    disk.half = false;
    disk.faults = 1;
    disk.only_writes = true;
    auto created = LogWriter::create(path, ring_limit, LogStorage::write_behind);
    REQUIRE(created.writer != nullptr);
    RingLog log(*created.writer);
    std::size_t at = 0;
    for (int stall = 0; at < records.size(); ++stall) {
        disk.holds_a_write = false;
        disk.stalled = true;
        feed(records[at++], log);
        while (!disk.holds_a_write && created.writer->stopped_because().empty()) {
            usleep(100);
        }
        const std::size_t to = std::min(at + chunk, records.size());
        for (; at < to; ++at) {
            feed(records[at], log);
        }
        disk.until_fault = stall == fails_at ? 0 : never;
        go_on();
        for (std::uint64_t writes = never; std::exchange(writes, disk.writes) != writes;) {
            usleep(20000);
        }
    }
    created.writer->close();
    disk.until_fault = never;
    check_log(path, *created.writer, reference);
}

TEST_CASE("a disk that failed after the last event is known at the end") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const std::uint64_t limit = GENERATE(std::uint64_t{0}, ring_limit);
    CAPTURE(limit);
    Records records = PlausibleRecords::make(42, 30000, true);
    const Reference reference(records);
    disk.error = ENOSPC;
    disk.half = true;
    disk.faults = 2;
    disk.only_writes = true;
    auto created = LogWriter::create(path, limit, LogStorage::write_behind);
    REQUIRE(created.writer != nullptr);
    feed(records.front(), *created.writer);
    disk.stalled = true;
    disk.until_fault = 0;
    for (std::size_t at = 1; at + 1 < records.size(); ++at) {
        feed(records[at], *created.writer);
    }
    go_on();
    while (created.writer->bytes_written() != 0 && disk.until_fault >= 0) {
        usleep(100);
    }
    usleep(20000);  // it has cut the log by now; otherwise close() tells of it
    feed(records.back(), *created.writer);
    created.writer->close();
    disk.until_fault = never;
    check_log(path, *created.writer, reference);
}

TEST_CASE("a log that can no longer be mapped goes on, or says that it does not") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const Records records = PlausibleRecords::make(43, 260000, true);
    const Reference reference(records);
    const bool truncates = GENERATE(true, false);
    const std::size_t mapped = GENERATE(2000, 60000, 150000);
    const bool for_good = GENERATE(true, false);
    CAPTURE(truncates, mapped, for_good);
    auto created = LogWriter::create(path, ring_limit);
    REQUIRE(created.writer != nullptr);
    RingLog log(*created.writer);
    for (std::size_t at = 0; at < records.size(); ++at) {
        if (at == mapped) {
            disk.maps = false;
            disk.truncates = truncates;
        }
        if (!for_good && at == mapped + 50000) {
            disk.maps = disk.truncates = true;
        }
        feed(records[at], log);
    }
    created.writer->close();
    disk.maps = disk.truncates = true;
    CHECK_FALSE(created.writer->stopped_because().empty());
    check_log(path, *created.writer, reference);
}

TEST_CASE("what cannot be read of a ring is not taken for what is not there") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const Records records = PlausibleRecords::make(45, 200000, true);
    {
        auto created = LogWriter::create(path, ring_limit);
        REQUIRE(created.writer != nullptr);
        RingLog log(*created.writer);
        for (const AnyRecord& record : records) {
            feed(record, log);
        }
    }
    const LogRing ring = LogRing::plan(ring_limit);
    for (std::uint64_t region = 0; region < ring.regions; ++region) {
        CAPTURE(region);
        disk.unreadable = static_cast<off_t>(ring.offset(region));
        const LogPart part = region % 2 == 0 ? LogPart::sums : LogPart::everything;
        Aggregator figures;
        const LogReadResult read = read_log(path, figures, nullptr, part);
        CHECK(read.status == LogStatus::damaged);
        CHECK(read.message.find("Input/output error") != std::string::npos);
        const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        Aggregator followed;
        LogTail tail(descriptor, path, followed, part);
        tail.read();
        CHECK(tail.error() == EIO);
        close(descriptor);
        disk.unreadable = -1;
    }
}
