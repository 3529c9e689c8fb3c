// The protocol of the control channel, and what its documents are read as.
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "interpose/control/protocol.hpp"
#include "model/live/live_documents.hpp"
#include "tests/catch.hpp"
#include "tools/live/documents.hpp"
#include "tools/live/find_processes.hpp"

using namespace memlab::interpose;
using memlab::model::ActionDocument;
using memlab::model::StatusDocument;

namespace {

std::string problem_with(const std::string& line) {
    Request request;
    return parse_request(line, &request);
}

/// As it is read in pieces of that size.
ReplyHead head_of(const std::string& bytes, std::size_t piece, std::size_t* taken) {
    ReplyHead head;
    *taken = 0;
    for (std::size_t at = 0; at < bytes.size() && head.state() == ReplyHead::State::incomplete;
         at += piece) {
        *taken += head.take(std::string_view(bytes).substr(at, piece));
    }
    return head;
}

}  // namespace

TEST_CASE("A request is a verb and its arguments") {
    Request request;
    REQUIRE(parse_request("sites\t20\tsince-mark", &request).empty());
    CHECK(request.verb == Verb::sites);
    REQUIRE(request.count == 2);
    CHECK(request.arguments()[0] == "20");
    CHECK(request.arguments()[1] == "since-mark");
    REQUIRE(parse_request("mark\t", &request).empty());
    REQUIRE(request.count == 1);
    CHECK(request.arguments()[0].empty());
    REQUIRE(parse_request("status", &request).empty());
    CHECK(request.count == 0);
}

TEST_CASE("What is no request is refused in one line") {
    CHECK(problem_with("mark") == "mark takes NAME");
    CHECK(problem_with("status\tnow") == "status takes no arguments");
    CHECK(problem_with("hold-on-oom\ton\t5\t6") == "hold-on-oom takes on|off [SECONDS]");
    for (const std::string& line :
         {std::string(), std::string("Status"), std::string("status "), std::string("\tstatus"),
          std::string("mark\tx\0y", 8), std::string(5000, 'x'), "mark" + std::string(9, '\t')}) {
        const std::string problem = problem_with(line);
        CHECK(!problem.empty());
        CHECK(problem.find('\n') == std::string::npos);
    }
}

TEST_CASE("A request is read as it was written") {
    for (std::size_t at = 0; at < std::size(verbs); ++at) {
        const auto verb = static_cast<Verb>(at);
        const std::vector<std::string> arguments(argument_count(info(verb).arguments).most, "a b");
        std::string line = request_line(verb, arguments);
        REQUIRE(line.ends_with('\n'));
        line.pop_back();
        Request request;
        REQUIRE(parse_request(line, &request).empty());
        CHECK(request.verb == verb);
        CHECK(std::equal(arguments.begin(), arguments.end(), request.arguments().begin(),
                         request.arguments().end()));
    }
    const std::vector<std::string> odd{"a\tb\nc"};
    CHECK(request_line(Verb::mark, odd) == "mark\ta b c\n");
}

TEST_CASE("Arguments are counted as they are described") {
    CHECK(argument_count("").most == 0);
    CHECK(argument_count("[GPU] BYTES|none").least == 1);
    CHECK(argument_count("[GPU] BYTES|none").most == 2);
    CHECK(argument_count("[N] [since-mark]").least == 0);
    for (const VerbDef& verb : verbs) {
        CHECK(argument_count(verb.arguments).most <= max_request_arguments);
    }
}

TEST_CASE("A reply's head is the same in any pieces") {
    using State = ReplyHead::State;
    struct Case {
        std::string bytes;
        State state;
        std::string text;
        std::size_t document_bytes;
    };
    const Case cases[] = {
        {"ok 12\n{}", State::document, "ok 12", 12},
        {"error no such verb\n", State::error, "no such verb", 0},
        {"ok 99999999999\n", State::invalid, "ok 99999999999", 0},
        {"ok -1\n", State::invalid, "ok -1", 0},
        {"ok 1 \n", State::invalid, "ok 1 ", 0},
        {"HTTP/1.1 200\n", State::invalid, "HTTP/1.1 200", 0},
        {"ok 1", State::incomplete, "ok 1", 0},
        {std::string(3000, 'x'), State::invalid, {}, 0},
    };
    for (const Case& each : cases) {
        for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, each.bytes.size()}) {
            std::size_t taken = 0;
            const ReplyHead head = head_of(each.bytes, piece, &taken);
            CHECK(head.state() == each.state);
            if (!each.text.empty()) {
                CHECK(head.text() == each.text);
            }
            if (head.state() == State::document) {
                CHECK(head.document_bytes() == each.document_bytes);
                CHECK(taken == each.bytes.find('\n') + 1);
            }
        }
    }
}

TEST_CASE("Sockets have the names of user and process") {
    CHECK(abstract_socket_name(1000, 4711) == "memlab-1000-4711");
    CHECK(socket_folder("/run/user/1000", 1000) == "/run/user/1000/memlab");
    CHECK(socket_folder("relative", 1000) == "/tmp/memlab-1000");
    CHECK(socket_folder(nullptr, 1000) == "/tmp/memlab-1000");
    CHECK(LiveAddress::abstract("memlab-1000-4711").fits());
    CHECK(LiveAddress::at(std::string(107, 'x')).fits());
    CHECK(!LiveAddress::at(std::string(108, 'x')).fits());
    CHECK(!LiveAddress::at("").fits());
}

TEST_CASE("Documents are read as they were written") {
    StatusDocument status;
    status.pid = 4711;
    status.arguments = {"train", "--x\n"};
    status.rank = "3";
    status.gpus.push_back({.gpu = 1, .name = "GPU", .allocated_bytes = 5, .tensor_bytes = 4});
    status.step_count = 7;
    status.hold_on_oom.waiting = 1;
    std::string problem;
    const auto read = memlab::tools::read_status(to_json(status), &problem);
    REQUIRE(read);
    CHECK(to_json(*read) == to_json(status));
    CHECK(read->gpus[0].tensor_bytes == 4);
    CHECK(!read->gpus[0].limit_bytes);

    const ActionDocument action{.verb = "trim", .text = "gave it back", .bytes = 9};
    const auto done = memlab::tools::read_action(to_json(action), &problem);
    REQUIRE(done);
    CHECK(done->bytes == 9);

    for (const char* text : {"", "{", "[]", "{\"format\":\"memlab-status\"}",
                             "{\"format\":\"memlab-action\",\"version\":1}"}) {
        problem.clear();
        CHECK(!memlab::tools::read_status(text, &problem));
        CHECK(problem.starts_with("its reply cannot be read: "));
        CHECK(problem.find('\n') == std::string::npos);
    }
}

TEST_CASE("The owner of a process is known") {
    const memlab::tools::ProcessOwner own = memlab::tools::owner_of(::getpid());
    CHECK(own.exists);
    CHECK(own.user == ::geteuid());
    CHECK(!memlab::tools::owner_of(0x3fffffff).exists);
    CHECK(memlab::tools::user_text(0) == "user root (0)");
    CHECK(memlab::tools::user_text(3999999999U) == "user 3999999999");
}
