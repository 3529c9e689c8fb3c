// A log that is followed while its file is created and replaced.
#include <filesystem>
#include <fstream>

#include "report/reading/followed_log.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/log_writer.hpp"

using namespace memlab::test;
using memlab::report::FollowedLog;
using memlab::report::StepSearch;
using State = FollowedLog::State;

TEST_CASE("an empty file that is replaced by a log is followed as that log") {
    const TemporaryFolder folder;
    const std::string path = folder / "memlab.train.1.memlog";
    std::ofstream(path).close();
    FollowedLog followed(path, 0, nullptr, StepSearch::none);
    CHECK_FALSE(followed.refresh());
    CHECK(followed.state() == State::growing);
    std::filesystem::remove(path);
    SECTION("with a log") {
        auto created = LogWriter::create(path, 0);
        REQUIRE(created.writer != nullptr);
        feed(PlausibleRecords::make(1, 1000, true), *created.writer);
        created.writer->close();
        CHECK(followed.refresh());
        CHECK(followed.state() == State::ended);
        CHECK(followed.report().report.has_value());
    }
    SECTION("with nothing") {
        CHECK(followed.refresh());
        CHECK(followed.state() == State::failed);
        CHECK(followed.problem().find("no such file") != std::string::npos);
    }
}
