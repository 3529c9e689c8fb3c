// Round trips through the event log, with truncation and damage.
#include <sys/stat.h>
#include <algorithm>
#include <filesystem>
#include <utility>
#include <variant>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/crc32c.hpp"
#include "trace/definitions.hpp"
#include "trace/log_writer.hpp"
#include "trace/reading/log_reader.hpp"

using namespace memlab::test;
using namespace memlab::trace;

namespace {

/// Writes the records, closes, returns the file's bytes.
std::vector<std::uint8_t> log_of(const Records& records, const std::string& path,
                                 LogStorage storage = LogStorage::automatic) {
    auto created = LogWriter::create(path, 0, storage);
    REQUIRE(created.error == nothing);
    feed(records, *created.writer);
    REQUIRE(created.writer->stopped_because() == nothing);
    created.writer->close();
    return read_file(path);
}

}  // namespace

TEST_CASE("crc32c gives the known answers") {
    CHECK(crc32c(0, "123456789", 9) == 0xe3069283);
    CHECK(crc32c(0, "", 0) == 0);
    const std::string zeros(32, '\0');
    CHECK(crc32c(0, zeros.data(), zeros.size()) == 0x8a9136aa);
    const std::string text = "a checksum in pieces is the checksum of the whole";
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        const auto first = crc32c(0, text.data(), cut);
        CHECK(crc32c(first, text.data() + cut, text.size() - cut) ==
              crc32c(0, text.data(), text.size()));
        CHECK(crc32c_by_table(0, text.data() + cut, text.size() - cut) ==
              crc32c(0, text.data() + cut, text.size() - cut));
    }
}

TEST_CASE("random records come back equal and in order") {
    const TemporaryFolder folder;
    const auto storage = GENERATE(LogStorage::automatic, LogStorage::write_only);
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
        CAPTURE(seed);
        const Records records = WildRecords::make(seed, 20000, true);
        const std::string path = folder / std::to_string(seed);
        log_of(records, path, storage);
        Recording back;
        const LogReadResult result = read_log(path, back);
        CHECK(result.status == LogStatus::complete);
        CHECK(result.message == nothing);
        CHECK(result.records == records.size());
        CHECK(result.offset == std::filesystem::file_size(path));
        REQUIRE(difference(back.records, records) == nothing);
        std::filesystem::remove(path);
    }
}

TEST_CASE("mapped and written logs have the same bytes") {
    const TemporaryFolder folder;
    const Records records = WildRecords::make(7, 30000, true);
    const auto mapped = log_of(records, folder / "mapped");
    const auto written = log_of(records, folder / "written", LogStorage::write_only);
    CHECK(mapped == written);
}

TEST_CASE("a free that is complete at once is the same two events, written as one record") {
    const TemporaryFolder folder;
    const auto record = [&](const char* name, std::uint64_t limit, auto&& free) {
        const std::string path = folder / name;
        auto created = LogWriter::create(path, limit);
        LogWriter& log = *created.writer;
        log.prefetch(EventType::alloc);
        log.on(DeviceInfo{.index = 0});
        log.on(DeviceInfo{.index = 3});
        log.on(StringDef{.id = 1, .text = "cudaFree"});
        for (std::uint64_t i = 1; i <= 2000; ++i) {
            Event event{.type = EventType::alloc, .time_ns = i, .address = i << 12};
            log.on(event);
            event.type = EventType::free_requested;
            event.api = i % 100 == 0 ? 0 : 1;
            event.correlation = static_cast<std::uint32_t>(i);
            event.device = i % 500 == 0 ? 3 : 0;
            log.prefetch(event.type);
            free(log, event);
        }
        log.on(End{.events_dropped = log.events_dropped()});
        log.close();
        log.prefetch(EventType::alloc);
        Recording back;
        CHECK(read_log(path, back).status == LogStatus::complete);
        const auto is_event = [](const auto& one) { return std::holds_alternative<Event>(one); };
        const auto events = std::count_if(back.records.begin(), back.records.end(), is_event);
        CHECK(static_cast<std::uint64_t>(events) + log.events_dropped() == 6000);
        return std::pair(back.records, read_file(path));
    };
    const auto two = [](LogWriter& log, const Event& event) {
        log.on(event);
        log.on(completed_at_once(event));
    };
    const auto one = [](LogWriter& log, const Event& event) { log.on_freed(event); };
    const auto apart = record("two", 0, two);
    const auto together = record("one", 0, one);
    CHECK(apart.first == together.first);
    CHECK(together.second.size() < apart.second.size() * 4 / 5);
    record("short", 8192, one);  // ends somewhere in between
}

TEST_CASE("events come back whole from their short forms, mixed with others") {
    const TemporaryFolder folder;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
        CAPTURE(seed);
        const Records records = TensorRecords::make(seed, 20000);
        const std::string path = folder / std::to_string(seed);
        const auto storage = seed == 5 ? LogStorage::write_only : LogStorage::automatic;
        auto created = LogWriter::create(path, 0, storage);
        LogWriter& log = *created.writer;
        log.prefetch_short();
        const bool mapped = std::filesystem::file_size(path) > log.bytes_written();
        const std::size_t shorts = feed_short(records, log);
        log.close();
        log.prefetch_short();
        CHECK((mapped ? shorts > records.size() * 2 / 5 : shorts == 0));
        Recording back;
        const LogReadResult result = read_log(path, back);
        CHECK(result.status == LogStatus::complete);
        CHECK(result.records == records.size());
        REQUIRE(difference(back.records, records) == nothing);
        CHECK(std::filesystem::file_size(path) < records.size() * 12);
    }
}

TEST_CASE("a short event needs an event before it in its block, and is refused otherwise") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    auto created = LogWriter::create(path, 1 << 20);
    LogWriter& log = *created.writer;
    const ShortEvent one{.time_ns = 10, .address = 1 << 20, .bytes = 512, .stack = 0};
    log.on(DeviceInfo{.index = 64});
    const Event event{.type = EventType::alloc,
                      .device = 64,
                      .time_ns = 5,
                      .address = 1 << 21,
                      .requested = 512,
                      .size = 512};
    CHECK_FALSE(log.on_short(one, false));
    log.on(event);
    CHECK_FALSE(log.on_short(one, true));  // no free before it
    const ShortEvent not_fitting[] = {
        {10, (1 << 20) + 8, 512, 0},
        {10, 0, 512, 0},
        {10, 1 << 20, std::uint64_t{1} << 32, 0},
        {10, std::uint64_t{1} << 49, 512, 0},
        {std::uint64_t{1} << 33, 1 << 20, 512, 0},
        {10, 1 << 20, 512, 0, 1 << 16},
    };
    for (const ShortEvent& each : not_fitting) {
        CHECK_FALSE(log.on_short(each, false));
    }
    const ShortEvent fitting[] = {
        one,
        {11, 1 << 20, 1, 0},
        {12, 1 << 20, (std::uint64_t{1} << 32) - 1, 0},
        {13, (std::uint64_t{1} << 47) + (1 << 21), 513, 0},
        {14, 1 << 21, 512, 0},
        {14, 512, 512, 0},
        {(std::uint64_t{1} << 32) + 13, 1024, 512, 0},
    };
    for (const ShortEvent& each : fitting) {
        CHECK(log.on_short(each, false));
    }
    const std::uint64_t time = std::uint64_t{2} << 32;
    std::size_t accepted = 0;
    // Each block begins without, and the log ends at its limit.
    for (std::uint64_t i = 0; i < 200000; ++i) {
        const ShortEvent next{time + i, (i % 1000 + 1) << 9, 512, 0};
        if (log.on_short(next, false)) {
            ++accepted;
        } else {
            Event whole = event;
            whole.time_ns = next.time_ns;
            whole.address = next.address;
            log.on(whole);
        }
    }
    log.on(End{.time_ns = time + 1000000, .events_dropped = log.events_dropped()});
    CHECK_FALSE(log.on_short({time + 2000000, 1 << 20, 512, 0}, false));
    log.close();
    Recording back;
    CHECK(read_log(path, back).status == LogStatus::complete);
    CHECK(log.events_dropped() > 0);
    CHECK(back.records.size() + log.events_dropped() == 200001 + std::size(fitting) + 2);
    for (std::size_t i = 0; i < std::size(fitting); ++i) {
        const auto& event = std::get<Event>(back.records[2 + i]);
        CHECK(event.time_ns == fitting[i].time_ns);
        CHECK(event.address == fitting[i].address);
        CHECK(event.requested == fitting[i].bytes);
        CHECK(event.size == fitting[i].bytes);
    }
    CHECK(accepted < 200000 - 16);
}

TEST_CASE("a plausible event costs less than a dozen bytes") {
    const TemporaryFolder folder;
    const Records records = PlausibleRecords::make(1, 20000);
    const auto bytes = log_of(records, folder / "log");
    CHECK(bytes.size() < records.size() * 16);
}

TEST_CASE("every prefix of a log decodes to a prefix of its records") {
    const TemporaryFolder folder;
    const bool tensors = GENERATE(false, true);
    const Records records = tensors ? TensorRecords::make(3, 400) : WildRecords::make(3, 400, true);
    const std::string path = folder / "log";
    auto created = LogWriter::create(path, 0);
    feed_short(records, *created.writer);
    created.writer->close();
    const auto bytes = read_file(path);
    std::size_t most = 0;
    for (std::size_t size = 0; size <= bytes.size(); ++size) {
        CAPTURE(size);
        // A copy of the exact size, so that a sanitizer sees any read beyond it.
        const std::vector<std::uint8_t> prefix(bytes.begin(),
                                               bytes.begin() + static_cast<long>(size));
        Recording back;
        const LogReadResult result = read_log(prefix.data(), prefix.size(), back);
        REQUIRE(is_prefix(back.records, records));
        REQUIRE(back.records.size() >= most);
        most = back.records.size();
        REQUIRE(result.records == back.records.size());
        REQUIRE(result.offset <= size);
        REQUIRE(result.status ==
                (most == records.size() ? LogStatus::complete : LogStatus::cut_off));
        REQUIRE(result.message.empty() == (result.status == LogStatus::complete));
    }
    CHECK(most == records.size());
}

namespace {

/// Every recording of tests/data whose size is within the bounds, cut off after every `step`th
/// byte.
void cut_recordings(std::uint64_t smallest, std::uint64_t largest, std::size_t step) {
    int recordings = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(MEMLAB_TEST_DATA)) {
        if (entry.path().extension() != ".memlog" || entry.file_size() < smallest ||
            entry.file_size() > largest) {
            continue;
        }
        CAPTURE(entry.path().string());
        const auto bytes = read_file(entry.path().string());
        Recording whole;
        REQUIRE(read_log(bytes.data(), bytes.size(), whole).status != LogStatus::damaged);
        REQUIRE_FALSE(whole.records.empty());
        std::size_t most = 0;
        for (std::size_t size = 0; size < bytes.size(); size += step) {
            Recording back;
            const LogReadResult result = read_log(bytes.data(), size, back);
            if (result.status == LogStatus::damaged || back.records.size() < most ||
                !is_prefix(back.records, whole.records)) {
                FAIL("cut off at byte " << size << ": " << result.message);
            }
            most = back.records.size();
        }
        CHECK((step != 1 || most + 1 >= whole.records.size()));
        ++recordings;
    }
    CHECK(recordings >= 3);
}

}  // namespace

TEST_CASE("every prefix of a real recording, of the earlier coding too, is a recording cut off") {
    cut_recordings(0, 7000, 1);
    cut_recordings(7001, 200000, 997);
}

TEST_CASE("every prefix of every real recording", "[.full]") {
    cut_recordings(0, 200000, 1);
}

TEST_CASE("a log without an end, closed or not, reads as cut off with all its records") {
    const TemporaryFolder folder;
    const Records records = WildRecords::make(4, 5000, false);
    auto created = LogWriter::create(folder / "log", 0);
    feed(records, *created.writer);
    {
        Recording back;  // still open, preallocated zeros behind the end
        CHECK(read_log(folder / "log", back).status == LogStatus::cut_off);
        CHECK(difference(back.records, records) == nothing);
    }
    created.writer->close();
    Recording back;
    const LogReadResult result = read_log(folder / "log", back);
    CHECK(result.status == LogStatus::cut_off);
    CHECK(difference(back.records, records) == nothing);
    CHECK(result.message.find(folder / "log") == 0);
    CHECK(result.message.find("stops at byte " + std::to_string(result.offset)) !=
          std::string::npos);
}

TEST_CASE("no bit flip in sealed blocks delivers anything false") {
    const TemporaryFolder folder;
    const Records records = WildRecords::make(5, 250, true);
    const auto bytes = log_of(records, folder / "log");
    std::size_t complete = 0;
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        auto damaged = bytes;
        damaged[bit / 8] = static_cast<std::uint8_t>(damaged[bit / 8] ^ (1U << (bit % 8)));
        Recording back;
        const LogReadResult result = read_log(damaged.data(), damaged.size(), back);
        if (!is_prefix(back.records, records)) {
            FAIL("bit " << bit << " of " << bytes.size() * 8);
        }
        complete += result.status == LogStatus::complete ? 1 : 0;
    }
    // The reserved word of the header, and the seal of a block whose records are all intact.
    CHECK(complete <= 64);
}

TEST_CASE("damage in the middle of a long log keeps everything before it") {
    const TemporaryFolder folder;
    const Records records = WildRecords::make(6, 40000, true);
    auto bytes = log_of(records, folder / "log");
    REQUIRE(bytes.size() > 4 * format::block_target);
    bytes[bytes.size() / 2] ^= 0x10;
    write_file(folder / "damaged", bytes);
    Recording back;
    const LogReadResult result = read_log(folder / "damaged", back);
    CHECK(result.status == LogStatus::damaged);
    CHECK(is_prefix(back.records, records));
    CHECK(back.records.size() > records.size() / 4);
    CHECK(back.records.size() < records.size());
    CHECK(result.message.find("damaged at byte") != std::string::npos);
}

TEST_CASE("what is no log is said to be none") {
    const TemporaryFolder folder;
    Recording back;
    const std::string text = "{\"format\":\"memlab-report\"}";
    CHECK(read_log(text.data(), text.size(), back).status == LogStatus::not_a_log);
    CHECK(read_log(folder / "missing", back).status == LogStatus::not_a_log);
    CHECK(read_log(folder / "missing", back).message.find("No such file") != std::string::npos);
    CHECK(read_log(folder.path(), back).status == LogStatus::not_a_log);
    CHECK(read_log(nullptr, 0, back).status == LogStatus::cut_off);
    auto bytes = log_of(WildRecords::make(1, 3, true), folder / "log");
    bytes[8] = 99;
    const LogReadResult newer = read_log(bytes.data(), bytes.size(), back);
    CHECK(newer.status == LogStatus::other_version);
    CHECK(newer.message.find("version 99") != std::string::npos);
    CHECK(back.records.empty());
}

TEST_CASE("what names the undefined is repaired, what is about the undefined cannot be") {
    Definitions known;
    REQUIRE(known.accept(DeviceInfo{.index = 1}));
    REQUIRE(known.accept(StringDef{.id = 1, .text = "f"}));

    Event event;
    event.device = 1;
    const Event sound = event;
    event.api = event.stack = event.context = event.name = 9;
    CHECK_FALSE(known.valid(event));
    CHECK(known.repair(event));
    CHECK(event == sound);
    event.device = 0;
    CHECK_FALSE(known.repair(event));  // of what device?
    ContextLost lost{.context = 3};
    CHECK_FALSE(known.repair(lost));
    DeviceSample sample{.device = 0};
    CHECK_FALSE(known.repair(sample));

    CHECK_FALSE(known.accept(StringDef{.id = 3, .text = ""}));  // not the next one
    CHECK_FALSE(known.accept(DeviceInfo{.index = 4096}));
    CHECK_FALSE(known.knows(Definition::string, 3));

    PythonFrameDef frame{.id = 1, .function = 7, .file = 1};
    CHECK_FALSE(known.accept(frame));
    CHECK(known.repair(frame));
    CHECK(frame == PythonFrameDef{.id = 1, .function = 0, .file = 1});
    CHECK(known.accept(frame));
    StackDef stack{.id = 1, .frames = {{.address = 5}, {.python = 3}, {5, 1}, {.python = 1}}};
    CHECK(known.repair(stack));
    CHECK(stack ==
          StackDef{.id = 1, .frames = {{.address = 5}, {}, {.address = 1}, {.python = 1}}});
    Work work{.device = 1, .start_ns = 5, .end_ns = 3};
    CHECK(known.repair(work));
    CHECK(work.end_ns == 5);
}

TEST_CASE("a log that names what it does not define is damaged there") {
    std::vector<std::uint8_t> log(format::magic, format::magic + sizeof format::magic);
    log.resize(format::file_header_size);
    log[sizeof format::magic] = format::version;
    log.push_back(format::block_tag);
    log.resize(format::file_header_size + format::block_header_size);
    CodecState state;
    const StackDef sound{.id = 1, .frames = {{.address = 1}}};
    const StackDef names_undefined{.id = 2, .frames = {{.python = 1}}};
    RecordEncoder(log, state.bases).encode(sound);
    RecordEncoder(log, state.bases).encode(names_undefined);
    Recording back;
    CHECK(read_log(log.data(), log.size(), back).status == LogStatus::damaged);
    CHECK(difference(back.records, Records{sound}) == nothing);
}

TEST_CASE("a record may be longer or shorter than this version's") {
    const auto read = [](std::vector<std::uint8_t> fields, Recording& back) {
        std::vector<std::uint8_t> log(format::magic, format::magic + sizeof format::magic);
        log.resize(format::file_header_size);
        log[sizeof format::magic] = format::version;
        log.push_back(format::block_tag);
        log.resize(format::file_header_size + format::block_header_size);
        log.push_back(record_tag<OptionValue>);
        log.push_back(static_cast<std::uint8_t>(fields.size()));
        log.insert(log.end(), fields.begin(), fields.end());
        return read_log(log.data(), log.size(), back).status;
    };
    Recording longer;
    CHECK(read({1, 'a', 1, 'b', 77, 78}, longer) == LogStatus::cut_off);
    CHECK(difference(longer.records, Records{OptionValue{"a", "b"}}) == nothing);
    Recording shorter;
    CHECK(read({1, 'a'}, shorter) == LogStatus::cut_off);
    CHECK(difference(shorter.records, Records{OptionValue{"a", ""}}) == nothing);
    Recording cut;  // inside a field
    CHECK(read({1, 'a', 9, 'b'}, cut) == LogStatus::damaged);
    CHECK(cut.records.empty());
}

TEST_CASE("a list of a record is whole") {
    std::vector<std::uint8_t> bytes;
    DifferenceBases bases;
    RecordEncoder(bytes, bases).encode(StackDef{.id = 1, .frames = {{0, 1}, {0, 2}}});
    REQUIRE(bytes[1] == bytes.size() - 2);
    bytes.pop_back();
    --bytes[1];  // the last frame lacks its address
    ByteReader from(bytes.data() + 1, bytes.data() + bytes.size());
    StackDef stack;
    CHECK(RecordDecoder(from, bases).decode(stack) == DecodeStatus::bad);
}

TEST_CASE("a log's name is taken once") {
    const TemporaryFolder folder;
    const auto first = LogWriter::create(folder / "log", 0);
    REQUIRE(first.writer != nullptr);
    const auto second = LogWriter::create(folder / "log", 0);
    CHECK(second.writer == nullptr);
    CHECK(second.error_number == EEXIST);
    CHECK(second.error.find(folder / "log") != std::string::npos);
    std::filesystem::create_symlink(folder / "nowhere", folder / "link");
    CHECK(LogWriter::create(folder / "link", 0).error_number == EEXIST);
    CHECK(LogWriter::create(folder / "no/such/folder", 0).error_number == ENOENT);
}

TEST_CASE("what comes after the end is ignored") {
    const TemporaryFolder folder;
    auto created = LogWriter::create(folder / "log", 0);
    created.writer->on(DeviceInfo{.index = 0});
    created.writer->on(End{.time_ns = 4});
    created.writer->on(Event{});
    created.writer->on(End{.time_ns = 5});
    created.writer->close();
    created.writer->close();
    Recording back;
    CHECK(read_log(folder / "log", back).status == LogStatus::complete);
    CHECK(difference(back.records, Records{DeviceInfo{.index = 0}, End{.time_ns = 4}}) == nothing);
}

TEST_CASE("a closed log has no preallocated rest") {
    const TemporaryFolder folder;
    auto created = LogWriter::create(folder / "log", 0);
    feed(WildRecords::make(2, 10, true), *created.writer);
    const std::uint64_t written = created.writer->bytes_written();
    created.writer->close();
    CHECK(std::filesystem::file_size(folder / "log") == written);
    struct stat status {};
    REQUIRE(stat((folder / "log").c_str(), &status) == 0);
    const mode_t mask = umask(0);
    umask(mask);
    CHECK((status.st_mode & 0777) == (0666 & ~mask));
}
