// The line that a process adds to its run's manifest, against /proc and against real parents.
#include "interpose/process/manifest_line.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "model/manifest_field.hpp"
#include "tests/catch.hpp"

using memlab::interpose::manifest_line;

namespace {

std::vector<std::string> fields_of(const std::string& line) {
    REQUIRE_FALSE(line.empty());
    REQUIRE(line.back() == '\n');
    REQUIRE(std::count(line.begin(), line.end(), '\n') == 1);
    std::vector<std::string> fields;
    std::istringstream text(line.substr(0, line.size() - 1));
    for (std::string field; std::getline(text, field, '\t');) {
        fields.push_back(field);
    }
    return fields;
}

/// The line as a child of this process writes it, which runs `prepare` first.
template <class Prepare>
std::string line_of_child(const Prepare& prepare) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        prepare();
        const std::string line = manifest_line("/x.memlog", "/x.json", true);
        _exit(write(ends[1], line.data(), line.size()) < 0);
    }
    close(ends[1]);
    std::string line(8192, '\0');
    line.resize(static_cast<std::size_t>(read(ends[0], line.data(), line.size())));
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    return line;
}

}  // namespace

TEST_CASE("names with a newline, a tab or a backslash stay one field of one line") {
    const std::string odd = "/a\tb\nc\\n.json";
    const auto own = fields_of(manifest_line("/x.memlog", odd, true));
    CHECK(own[1] == "/x.memlog");
    CHECK(memlab::model::unescaped_field(own[2]) == odd);
}

TEST_CASE("a process names itself, its files and its ancestors") {
    const auto own = fields_of(manifest_line("/a/b.memlog", "/a/b.json", true));
    REQUIRE(own.size() >= 6);
    CHECK(own[0] == std::to_string(getpid()));
    CHECK(own[1] == "/a/b.memlog");
    CHECK(own[2] == "/a/b.json");
    CHECK(std::stoull(own[3]) > 0);
    CHECK(std::stoull(own[4]) > 0);
    CHECK(own[5].starts_with(std::to_string(getppid()) + "="));
    CHECK(own[5].size() > std::to_string(getppid()).size() + 1);

    const auto child = fields_of(line_of_child([] {}));
    REQUIRE(child.size() >= 7);
    CHECK(child[0] != own[0]);
    CHECK(child[3] == own[3]);
    CHECK(std::stoull(child[4]) >= std::stoull(own[4]));
    CHECK(child[5].starts_with(own[0] + "="));
    CHECK(child[5].find("unit_interpose") != std::string::npos);
    CHECK(child[6] == own[5]);
    CHECK(child.size() <= 5 + 16);
}

TEST_CASE("a process name with parentheses and blanks is parsed correctly") {
    const auto plain = fields_of(line_of_child([] {}));
    const auto odd = fields_of(line_of_child([] { prctl(PR_SET_NAME, ") R 1 (x) "); }));
    CHECK(odd[3] == plain[3]);
    CHECK(odd[5] == plain[5]);
    CHECK(std::stoull(odd[4]) >= std::stoull(plain[4]));
}
