// The event log on a network file system: a server that does not answer a write, and one that tells
// of lost writes when the file is closed. This program's own pwrite() and close() take the place of
// the C library's and are such a server's on request.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/log_writer.hpp"
#include "trace/reading/log_reader.hpp"

using namespace memlab::test;
using namespace memlab::trace;

namespace {

std::atomic<bool> answers{true};
std::atomic<bool> asked{false};
std::atomic<bool> loses_writes{false};

void wait_for_the_server() {
    asked = true;
    asked.notify_all();
    answers.wait(false);
}

/// From here on the server does not answer, to the end of the scope.
class Silence {
  public:
    Silence() {
        asked = false;
        answers = false;
    }
    ~Silence() { end(); }
    Silence(const Silence&) = delete;
    Silence& operator=(const Silence&) = delete;
    void end() {
        answers = true;
        answers.notify_all();
    }
};

}  // namespace

extern "C" ssize_t pwrite(int descriptor, const void* data, std::size_t size, off_t offset) {
    if (!answers) {
        wait_for_the_server();
    }
    return syscall(SYS_pwrite64, descriptor, data, size, offset);
}

extern "C" int close(int descriptor) {
    const auto result = static_cast<int>(syscall(SYS_close, descriptor));
    if (result == 0 && loses_writes) {
        errno = EIO;
        return -1;
    }
    return result;
}

TEST_CASE("a file server that does not answer holds up nobody who records") {
    const TemporaryFolder folder;
    auto created = LogWriter::create(folder / "log", 0, LogStorage::write_behind);
    WildRecords wild(1);
    Silence silence;
    feed(wild.next(), *created.writer);
    asked.wait(false);
    // Were a record to wait for the server now, it would wait forever.
    std::uint64_t appended = 1;
    for (; created.writer->events_dropped() < 100; ++appended) {
        feed(wild.next(), *created.writer);
    }
    CHECK(!answers);
    CHECK(appended > 1000);
    CHECK(created.writer->stopped_because().find("file system did not keep up") !=
          std::string::npos);
    silence.end();
    created.writer->on(End{.events_dropped = created.writer->events_dropped()});
    created.writer->close();
    CHECK(created.writer->incomplete_because() == nothing);
    Recording back;
    CHECK(read_log(folder / "log", back).status == LogStatus::complete);
    REQUIRE(back.stopped);
    CHECK(back.stopped->reason == created.writer->stopped_because());
}

TEST_CASE("the end waits for a file server only so long") {
    const TemporaryFolder folder;
    const Silence silence;
    WriteBehind* const file = WriteBehind::start(
        OwnDescriptor(::open((folder / "log").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)), 0);
    REQUIRE(file != nullptr);
    const std::uint8_t bytes[4] = {1, 2, 3, 4};
    REQUIRE(file->append(bytes, sizeof bytes, 0, 1) == WriteBehind::Outcome::appended);
    CHECK(WriteBehind::finish(file, 20'000'000) == ETIMEDOUT);
}

TEST_CASE("writes that a file server lost until the close are an error of the end") {
    const TemporaryFolder folder;
    const auto storage =
        GENERATE(LogStorage::automatic, LogStorage::write_behind, LogStorage::write_only);
    auto created = LogWriter::create(folder / "log", 0, storage);
    feed(WildRecords::make(1, 1000, true), *created.writer);
    loses_writes = true;
    created.writer->close();
    loses_writes = false;
    CHECK(created.writer->stopped_because() == nothing);
    CHECK(created.writer->incomplete_because() ==
          "the end of the event log may be missing: Input/output error");
}
