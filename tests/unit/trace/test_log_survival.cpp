// The event log under kills and system limits. Each case runs in a child process, so that a signal
// or a changed limit does not affect other tests.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>

#include "tests/catch.hpp"
#include "tests/support/thorough.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/log_writer.hpp"
#include "trace/reading/log_reader.hpp"

using namespace memlab::test;
using namespace memlab::trace;

namespace {

/// Shared memory from a child to its parent.
struct Board {
    std::atomic<std::uint64_t> appended{0};
    std::atomic<std::uint64_t> dropped{0};
    std::atomic<std::uint64_t> size{0};
    char reason[256] = "";
};

class SharedBoard {
  public:
    SharedBoard()
        : memory_(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)),
          board_(new (memory_) Board) {}
    SharedBoard(const SharedBoard&) = delete;
    SharedBoard& operator=(const SharedBoard&) = delete;
    ~SharedBoard() { munmap(memory_, sizeof(Board)); }
    Board* operator->() const { return board_; }
    Board& operator*() const { return *board_; }

  private:
    void* memory_;
    Board* board_;
};

/// Runs `work` in a child process; its exit code, or minus the signal that killed it.
int in_child(const std::function<int()>& work) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        _exit(work());
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/// Appends random records until the log stops, then ends it.
int fill_up(const std::string& path, std::uint64_t limit, LogStorage storage, Board& board) {
    auto created = LogWriter::create(path, limit, storage);
    if (created.writer == nullptr) {
        std::snprintf(board.reason, sizeof board.reason, "%s", created.error.c_str());
        return 9;
    }
    WildRecords wild(1);
    for (std::uint64_t i = 0; i < 2000000 && created.writer->events_dropped() < 100; ++i) {
        feed(wild.next(), *created.writer);
        board.appended += created.writer->stopped_because().empty() ? 1 : 0;
    }
    std::snprintf(board.reason, sizeof board.reason, "%s",
                  created.writer->stopped_because().c_str());
    board.dropped = created.writer->events_dropped();
    End end{.time_ns = 77};
    end.events_dropped = created.writer->events_dropped();
    end.log_stopped_because = created.writer->stopped_because();
    created.writer->on(end);
    created.writer->close();
    board.size = created.writer->bytes_written();
    return created.writer->stopped_because().empty() ? 1 : 0;
}

/// Checks that the log has the records before it stopped, then End with the number of missing ones.
void check_stopped_log(const std::string& path, const Board& board) {
    Recording back;
    const LogReadResult result = read_log(path, back);
    CHECK(result.status == LogStatus::complete);
    CHECK(result.message == nothing);
    REQUIRE(back.records.size() == board.appended + 1);
    Records expected = WildRecords::make(1, board.appended, false);
    expected.emplace_back(End{.time_ns = 77,
                              .kind = EndKind::exit,
                              .events_dropped = board.dropped,
                              .log_stopped_because = board.reason});
    CHECK(difference(back.records, expected) == nothing);
    REQUIRE(back.stopped);
    CHECK(back.stopped->reason == board.reason);
    CHECK(back.stopped->events_dropped <= board.dropped);
    CHECK(back.stopped->events_dropped >= board.dropped / 2);
    CHECK(std::filesystem::file_size(path) == board.size);
}

}  // namespace

TEST_CASE("everything appended before a SIGKILL reads back", "[kill]") {
    const TemporaryFolder folder;
    const auto seeds = memlab::testing::thoroughly<std::uint64_t>(200, 60);
    std::uint64_t unfinished = 0;
    std::uint64_t sealed = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        CAPTURE(seed);
        const auto storage = seed % 4 == 3 ? LogStorage::write_only : LogStorage::automatic;
        const SharedBoard board;
        const std::string path = folder / ("log" + std::to_string(seed));
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            auto created = LogWriter::create(path, 0, storage);
            if (created.writer == nullptr) {
                _exit(1);
            }
            WildRecords wild(seed);
            for (std::uint64_t i = 0; i < 100000000; ++i) {
                feed(wild.next(), *created.writer);
                board->appended.fetch_add(1);
            }
            _exit(2);
        }
        // At a random number of records, give or take what the child does until the signal.
        Random random(seed);
        const std::uint64_t goal = random.any() % 8000;
        int status = 0;
        while (board->appended.load() < goal && waitpid(child, &status, WNOHANG) == 0) {
            sched_yield();
        }
        kill(child, SIGKILL);
        REQUIRE(waitpid(child, &status, 0) == child);
        REQUIRE(WIFSIGNALED(status));
        Recording back;
        const LogReadResult result = read_log(path, back);
        if (!std::filesystem::exists(path)) {
            REQUIRE(board->appended == 0);  // killed before it began
            continue;
        }
        REQUIRE(result.status == LogStatus::cut_off);
        REQUIRE(back.records.size() >= board->appended);
        REQUIRE(back.records.size() <= board->appended + 1);
        REQUIRE(difference(back.records, WildRecords::make(seed, back.records.size(), false)) ==
                nothing);
        unfinished += back.records.size() > board->appended ? 1 : 0;
        sealed += result.offset > format::block_target ? 1 : 0;
        std::filesystem::remove(path);
    }
    CHECK(sealed > seeds / 20);  // kills hit both the first block and later ones
    INFO("killed between append and count: " << unfinished);
}

TEST_CASE("at its limit the log stops, says so and still ends") {
    const TemporaryFolder folder;
    const auto storage =
        GENERATE(LogStorage::automatic, LogStorage::write_behind, LogStorage::write_only);
    for (const std::uint64_t limit : {700, 5000, 65536, 300001, 3000000}) {
        CAPTURE(limit);
        const std::string path = folder / std::to_string(limit);
        const SharedBoard board;
        CHECK(in_child([&] { return fill_up(path, limit, storage, *board); }) == 0);
        check_stopped_log(path, *board);
        CHECK(std::filesystem::file_size(path) <= limit);
        CHECK(
            std::string(board->reason).find(std::to_string(limit) + " bytes (MEMLAB_LOG_LIMIT)") !=
            std::string::npos);
        CHECK(board->dropped >= 100);
        std::filesystem::remove(path);
    }
}

TEST_CASE("a limit too small for anything leaves an empty log, not a crash") {
    const TemporaryFolder folder;
    for (const std::uint64_t limit : {1, 15, 16, 100, 350}) {
        CAPTURE(limit);
        const std::string path = folder / std::to_string(limit);
        const SharedBoard board;
        CHECK(in_child([&] { return fill_up(path, limit, LogStorage::automatic, *board); }) == 0);
        Recording back;
        const LogStatus status = read_log(path, back).status;
        CHECK((status == LogStatus::cut_off || status == LogStatus::complete));
        CHECK(std::filesystem::file_size(path) <= limit);
    }
}

TEST_CASE("RLIMIT_FSIZE is respected: no SIGXFSZ") {
    const TemporaryFolder folder;
    const auto storage =
        GENERATE(LogStorage::automatic, LogStorage::write_behind, LogStorage::write_only);
    for (const rlim_t limit : {4096UL, 100000UL, 2000000UL}) {
        CAPTURE(limit);
        const std::string path = folder / std::to_string(limit);
        const SharedBoard board;
        CHECK(in_child([&] {
                  const rlimit sizes{limit, limit};
                  if (setrlimit(RLIMIT_FSIZE, &sizes) != 0) {
                      return 8;
                  }
                  return fill_up(path, 0, storage, *board);
              }) == 0);
        check_stopped_log(path, *board);
        CHECK(std::filesystem::file_size(path) <= limit);
        CHECK(std::string(board->reason).find("RLIMIT_FSIZE") != std::string::npos);
        std::filesystem::remove(path);
    }
}

TEST_CASE("RLIMIT_FSIZE lowered below the log while it is written") {
    const TemporaryFolder folder;
    const auto storage =
        GENERATE(LogStorage::automatic, LogStorage::write_behind, LogStorage::write_only);
    const std::string path = folder / "log";
    CHECK(in_child([&] {
              auto created = LogWriter::create(path, 0, storage);
              WildRecords wild(1);
              for (int i = 0; i < 3000; ++i) {
                  feed(wild.next(), *created.writer);
              }
              const rlimit sizes{100, 100};
              if (setrlimit(RLIMIT_FSIZE, &sizes) != 0) {
                  return 8;
              }
              for (int i = 0; i < 100000; ++i) {
                  feed(wild.next(), *created.writer);
              }
              created.writer->close();
              return created.writer->stopped_because().empty() ? 1 : 0;
          }) == 0);
    Recording back;
    CHECK(read_log(path, back).status == LogStatus::cut_off);
    if (storage != LogStorage::write_behind) {  // it may have written none of them by then
        CHECK(back.records.size() >= 3000);
    }
    CHECK(difference(back.records, WildRecords::make(1, back.records.size(), false)) == nothing);
    std::filesystem::remove(path);
}

TEST_CASE("a full disk stops the log, without a SIGBUS") {
    const TemporaryFolder folder;
    const auto storage =
        GENERATE(LogStorage::automatic, LogStorage::write_behind, LogStorage::write_only);
    const SharedBoard board;
    const std::string disk = folder / "disk";
    const std::string copy = folder / "copy";
    std::filesystem::create_directory(disk);
    constexpr int not_permitted = 77;
    const int outcome = in_child([&] {
        // Directly as root; otherwise as root of a user namespace of our own.
        if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
            return not_permitted;
        }
        if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=300k") != 0) {
            return not_permitted;
        }
        const int result = fill_up(disk + "/log", 0, storage, *board);
        if (result == 0) {
            write_file(copy, read_file(disk + "/log"));  // the mount ends with this process
        }
        return result;
    });
    if (outcome == not_permitted) {
        WARN(
            "not run: mounting a small tmpfs is not permitted here; the RLIMIT_FSIZE and "
            "MEMLAB_LOG_LIMIT cases cover the same stop, not the system's ENOSPC");
        return;
    }
    CHECK(outcome == 0);
    CHECK(std::string(board->reason).find("No space left on device") != std::string::npos);
    CHECK(board->size > 200000);
    if (storage == LogStorage::automatic) {
        check_stopped_log(copy, *board);
    } else if (storage == LogStorage::write_behind) {
        // What had not been written yet is lost, and counted; the last words are where it began.
        Recording back;
        CHECK(read_log(copy, back).status == LogStatus::complete);
        REQUIRE(back.stopped);
        CHECK(back.stopped->reason == board->reason);
        REQUIRE(!back.records.empty());
        back.records.pop_back();  // End
        CHECK(back.records.size() <= board->appended);
        CHECK(difference(back.records, WildRecords::make(1, back.records.size(), false)) ==
              nothing);
    } else {
        // Nothing was set aside on the disk, so End may be missing; the records are not.
        Recording back;
        read_log(copy, back);
        REQUIRE(back.records.size() >= board->appended);
        back.records.resize(board->appended);
        CHECK(difference(back.records, WildRecords::make(1, board->appended, false)) == nothing);
    }
}

TEST_CASE("a process that is killed after its log stopped leaves the reason and the count") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const SharedBoard board;
    CHECK(in_child([&] {
              auto created = LogWriter::create(path, 100000, LogStorage::automatic);
              WildRecords wild(1);
              while (created.writer->events_dropped() < 1000) {
                  feed(wild.next(), *created.writer);
              }
              board->dropped = created.writer->events_dropped();
              ::raise(SIGKILL);
              return 1;
          }) == -SIGKILL);
    Recording back;
    const LogReadResult result = read_log(path, back);
    CHECK(result.status == LogStatus::cut_off);
    CHECK(result.message.find("stopped early (the event log reached its limit") !=
          std::string::npos);
    REQUIRE(back.stopped);
    CHECK(back.stopped->reason.find("MEMLAB_LOG_LIMIT") != std::string::npos);
    CHECK(back.stopped->events_dropped == board->dropped);
}

TEST_CASE("a descriptor that the program closed is not written to, whoever has it") {
    const TemporaryFolder folder;
    const auto storage =
        GENERATE(LogStorage::automatic, LogStorage::write_behind, LogStorage::write_only);
    const std::string log = folder / "log";
    const std::string other = folder / "other";
    const std::string content(100000, 'x');
    const Records records = WildRecords::make(3, 30000, true);
    auto created = LogWriter::create(log, 0, storage);
    std::size_t closed_after = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
        if (i == records.size() / 10) {
            closed_after = i;
            std::ofstream(other) << content;
            const int theirs = open(other.c_str(), O_RDWR | O_CLOEXEC);
            for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
                std::error_code gone;
                const int descriptor = std::stoi(entry.path().filename());
                if (std::filesystem::read_symlink(entry.path(), gone) == log) {
                    CHECK(descriptor > 2);
                    REQUIRE(dup3(theirs, descriptor, O_CLOEXEC) == descriptor);
                    break;
                }
            }
            close(theirs);
        }
        feed(records[i], *created.writer);
    }
    created.writer->close();
    CHECK(created.writer->stopped_because() ==
          "the program closed the event log's file descriptor");
    CHECK(read_file(other) == std::vector<std::uint8_t>(content.begin(), content.end()));
    Recording back;
    read_log(log, back);
    if (storage == LogStorage::automatic) {  // what is mapped stays so
        REQUIRE(back.stopped);
        CHECK(back.records.size() >= closed_after);
        CHECK(std::get_if<End>(&back.records.back()) != nullptr);
        back.records.pop_back();
    }
    CHECK(is_prefix(back.records, records));
}

TEST_CASE("a record that finds no room in memory stops a log that a thread writes") {
    const TemporaryFolder folder;
    auto created = LogWriter::create(folder / "log", 0, LogStorage::write_behind);
    created.writer->on(OptionValue{"first", "1"});
    created.writer->on(OptionValue{"large", std::string(WriteBehind::capacity, 'x')});
    CHECK(created.writer->stopped_because().find("did not keep up") != std::string::npos);
    created.writer->on(End{});
    created.writer->close();
    Recording back;
    CHECK(read_log(folder / "log", back).status == LogStatus::complete);
    CHECK(back.records.size() == 2);
    CHECK(back.stopped.has_value());
}

TEST_CASE("a disk that is full for the last bytes only is an error of the end") {
    // No more appends: only finish() can report the failure.
    WriteBehind* const file =
        WriteBehind::start(OwnDescriptor(open("/dev/full", O_WRONLY | O_CLOEXEC)), 0);
    REQUIRE(file != nullptr);
    const std::uint8_t bytes[4] = {1, 2, 3, 4};
    REQUIRE(file->append(bytes, sizeof bytes, 0, 1) == WriteBehind::Outcome::appended);
    CHECK(WriteBehind::finish(file, 5'000'000'000) == ENOSPC);
}

TEST_CASE("what a thread writes is what was appended") {
    const TemporaryFolder folder;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        CAPTURE(seed);
        const std::string path = folder / std::to_string(seed);
        const Records records = WildRecords::make(seed, 20000, true);
        auto created = LogWriter::create(path, 0, LogStorage::write_behind);
        feed(records, *created.writer);
        created.writer->close();
        CHECK(created.writer->stopped_because() == nothing);
        CHECK(created.writer->incomplete_because() == nothing);
        Recording back;
        CHECK(read_log(path, back).status == LogStatus::complete);
        CHECK(difference(back.records, records) == nothing);
        const std::string mapped = folder / "mapped";
        auto other = LogWriter::create(mapped, 0, LogStorage::automatic);
        feed(records, *other.writer);
        other.writer->close();
        CHECK(read_file(path) == read_file(mapped));  // sealed blocks as well
        std::filesystem::remove(mapped);
    }
}

TEST_CASE("what a thread has written by a while ago survives a SIGKILL") {
    const TemporaryFolder folder;
    const std::string path = folder / "log";
    const SharedBoard board;
    const Records records = WildRecords::make(5, 3000, false);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        auto created = LogWriter::create(path, 0, LogStorage::write_behind);
        feed(records, *created.writer);
        board->size = created.writer->bytes_written();
        for (;;) {
            pause();
        }
    }
    while (board->size == 0 || std::filesystem::file_size(path) < board->size) {
        sched_yield();  // the thread does it without a request
    }
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    Recording back;
    CHECK(read_log(path, back).status == LogStatus::cut_off);
    CHECK(difference(back.records, records) == nothing);
}

TEST_CASE("a forked child leaves its parent's log alone") {
    const TemporaryFolder folder;
    const Records records = WildRecords::make(9, 4000, true);
    auto created = LogWriter::create(folder / "log", 0);
    for (std::size_t i = 0; i < records.size(); ++i) {
        if (i == records.size() / 2) {
            CHECK(in_child([&] {
                      created.writer->abandon_after_fork();
                      created.writer.reset();
                      return 0;
                  }) == 0);
        }
        feed(records[i], *created.writer);
    }
    created.writer->close();
    Recording back;
    CHECK(read_log(folder / "log", back).status == LogStatus::complete);
    CHECK(difference(back.records, records) == nothing);
}

TEST_CASE("the log's descriptor does not pass through exec") {
    const TemporaryFolder folder;
    const auto created = LogWriter::create(folder / "log", 0);
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        if (std::filesystem::read_symlink(entry.path(), gone) == folder / "log") {
            const int descriptor = std::stoi(entry.path().filename());
            CHECK((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
            return;
        }
    }
    FAIL("the log is not open");
}
