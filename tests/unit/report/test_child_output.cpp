// Programs that the tools run: what they print, how they end, and that a wait with a limit ends.
#include <sys/wait.h>

#include <csignal>

#include "report/child_output.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;
using namespace std::chrono_literals;

TEST_CASE("a child's output, errors and end") {
    const ChildOutput output =
        run_child({"/bin/sh", "-c", "echo $WORD; echo two >&2; exit 3"}, {{"WORD", "one"}}, 30s);
    CHECK(output.out == "one\n");
    CHECK(output.err == "two\n");
    CHECK(WEXITSTATUS(output.wait_status) == 3);
    CHECK_FALSE(output.succeeded());
    CHECK(run_child({"/bin/sh", "-c", "exit 0"}, {}, 30s).succeeded());
}

TEST_CASE("a child without a limit, found in PATH, with more output than a pipe holds") {
    const ChildOutput output = run_child(
        {"sh", "-c", "i=0; while [ $i -lt 9999 ]; do echo 0123456789; i=$((i+1)); done"}, {});
    CHECK(output.out.size() == 9999 * 11);
    CHECK(output.succeeded());
}

TEST_CASE("a variable with an empty value is removed") {
    CHECK(run_child({"/bin/sh", "-c", "echo ${HOME-none}"}, {{"HOME", ""}}, 30s).out == "none\n");
}

TEST_CASE("a child that hangs is killed, and what it started") {
    const auto begin = std::chrono::steady_clock::now();
    const ChildOutput output =
        run_child({"/bin/sh", "-c", "echo begun; sleep 60 & sleep 60"}, {}, 300ms);
    CHECK(output.timed_out);
    CHECK(output.out == "begun\n");
    CHECK(std::chrono::steady_clock::now() - begin < 30s);
    CHECK(run_child({"/bin/sh", "-c", "exec >&- 2>&-; sleep 60"}, {}, 300ms).timed_out);
}

TEST_CASE("a child that crashes, and one that is not there") {
    const ChildOutput crashed = run_child({"/bin/sh", "-c", "kill -SEGV $$"}, {}, 30s);
    CHECK(WIFSIGNALED(crashed.wait_status));
    CHECK(WTERMSIG(crashed.wait_status) == SIGSEGV);
    CHECK_FALSE(run_child({"/no/such/program"}, {}, 30s).started());
    CHECK_FALSE(run_child({"no-such-program"}, {}).started());
}
