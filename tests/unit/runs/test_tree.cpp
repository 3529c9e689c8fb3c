// The process tree from process ids, times and the facts of memlab-run.
#include "report/runs/tree.hpp"

#include "tests/catch.hpp"
#include "tests/unit/runs/synthetic_member.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

RunMember cut_off(RunMember member) {
    member.report.process.ended = "cut off";
    return member;
}

RunFacts facts_with(std::uint64_t pid, const std::vector<RunFacts::Ancestor>& ancestors) {
    RunFacts facts;
    facts.host = "node1";
    facts.pid = pid;
    facts.ancestors = ancestors;
    return facts;
}

}  // namespace

TEST_CASE("three levels, in the order of their start") {
    RunCollection run;
    run.members = {synthetic_member(10, 1, 100), synthetic_member(11, 10, 200),
                   synthetic_member(12, 11, 300), synthetic_member(13, 10, 400)};
    const ProcessTree tree = build_tree(run);
    REQUIRE(tree.nodes.size() == 4);
    CHECK(tree.roots == std::vector<std::size_t>{0});
    CHECK(tree.nodes[0].children == std::vector<std::size_t>{1, 3});
    CHECK(tree.nodes[1].children == std::vector<std::size_t>{2});
}

TEST_CASE("ranks stand in their order, whenever they started") {
    const auto ranked = [](RunMember member, const char* rank) {
        member.report.process.ranks = {{"RANK", rank}};
        return member;
    };
    RunCollection run;
    // A launcher on each of two hosts; the second one's began first. 11 has no rank.
    run.members = {synthetic_member(10, 1, 100, "b"), synthetic_member(20, 1, 110, "a"),
                   synthetic_member(11, 10, 200, "b"),
                   ranked(synthetic_member(12, 10, 210, "b"), "10"),
                   ranked(synthetic_member(13, 10, 220, "b"), "9"),
                   ranked(synthetic_member(21, 20, 230, "a"), "1"),
                   ranked(synthetic_member(22, 20, 240, "a"), "0"),
                   // Helpers of rank 0 have its variables, and started in this order.
                   ranked(synthetic_member(24, 22, 250, "a"), "0"),
                   ranked(synthetic_member(23, 22, 260, "a"), "0")};
    const ProcessTree tree = build_tree(run);
    CHECK(tree.roots == std::vector<std::size_t>{1, 0});
    CHECK(tree.nodes[0].children == std::vector<std::size_t>{4, 3, 2});
    CHECK(tree.nodes[1].children == std::vector<std::size_t>{6, 5});
    CHECK(tree.nodes[6].children == std::vector<std::size_t>{7, 8});
}

TEST_CASE("the same process ids on two hosts are two families") {
    RunCollection run;
    run.members = {synthetic_member(10, 1, 100, "a"), synthetic_member(10, 1, 100, "b"),
                   synthetic_member(11, 10, 200, "a"), synthetic_member(11, 10, 200, "b")};
    const ProcessTree tree = build_tree(run);
    CHECK(tree.roots == std::vector<std::size_t>{0, 1});
    CHECK(tree.nodes[2].parent == 0);
    CHECK(tree.nodes[3].parent == 1);
}

TEST_CASE("an exec keeps the process id; a process id that is used again is another process") {
    RunCollection run;
    run.members = {cut_off(synthetic_member(10, 5, 100)), cut_off(synthetic_member(10, 5, 200)),
                   synthetic_member(10, 5, 300), synthetic_member(10, 5, 400)};
    ProcessTree tree = build_tree(run);
    CHECK(tree.nodes[1].by_exec);
    CHECK(tree.nodes[1].parent == 0);
    CHECK(tree.nodes[2].by_exec);
    CHECK(tree.nodes[2].parent == 1);
    // The third process ended by exit: the next one is not an image of it.
    CHECK_FALSE(tree.nodes[3].by_exec);

    // Start times take precedence over how the recording ended.
    run.members[0].start_ticks = 7;
    run.members[1].start_ticks = 8;
    run.members[2].start_ticks = 8;
    tree = build_tree(run);
    CHECK_FALSE(tree.nodes[1].by_exec);
    CHECK(tree.nodes[2].by_exec);
}

TEST_CASE("a child of the later image is its child") {
    RunCollection run;
    run.members = {cut_off(synthetic_member(10, 5, 100)), synthetic_member(10, 5, 200),
                   synthetic_member(11, 10, 300)};
    CHECK(build_tree(run).nodes[2].parent == 1);
}

TEST_CASE("a parent that began to use CUDA after its child") {
    RunCollection run;
    run.members = {synthetic_member(11, 10, 100), synthetic_member(10, 1, 200)};
    const ProcessTree tree = build_tree(run);
    CHECK(tree.nodes[0].parent == 1);
    CHECK(tree.roots == std::vector<std::size_t>{1});
}

TEST_CASE("processes without CUDA stand where memlab-run saw them") {
    RunCollection run;
    run.members = {synthetic_member(20, 12, 100), synthetic_member(21, 13, 200),
                   synthetic_member(30, 20, 300)};
    run.runs.push_back(facts_with(9, {{12, 11, "sh a"}, {13, 11, "sh b"}, {11, 9, "bash"}}));
    const ProcessTree tree = build_tree(run);
    REQUIRE(tree.nodes.size() == 6);
    REQUIRE(tree.roots.size() == 1);
    const TreeNode& bash = tree.nodes[tree.roots[0]];
    CHECK(bash.command == "bash");
    CHECK(bash.member == no_member);
    REQUIRE(bash.children.size() == 2);
    CHECK(tree.nodes[bash.children[0]].command == "sh a");
    CHECK(tree.nodes[bash.children[0]].children == std::vector<std::size_t>{0});
    CHECK(tree.nodes[bash.children[1]].children == std::vector<std::size_t>{1});
    CHECK(tree.nodes[2].parent == 0);
}

TEST_CASE("an unknown parent is shown where it joins several") {
    RunCollection run;
    run.members = {synthetic_member(20, 12, 100), synthetic_member(21, 12, 200),
                   synthetic_member(22, 14, 300)};
    const ProcessTree tree = build_tree(run);
    REQUIRE(tree.roots.size() == 2);
    const TreeNode& joined = tree.nodes[tree.nodes[0].parent];
    CHECK(joined.pid == 12);
    CHECK(joined.children == std::vector<std::size_t>{0, 1});
    CHECK(tree.nodes[2].parent == no_member);
}

TEST_CASE("contradictions end") {
    RunCollection run;
    run.members = {synthetic_member(10, 11, 100), synthetic_member(11, 10, 100),
                   synthetic_member(12, 12, 100)};
    run.runs.push_back(facts_with(9, {{50, 51, "a"}, {51, 50, "b"}}));
    run.members.push_back(synthetic_member(13, 50, 200));
    const ProcessTree tree = build_tree(run);
    std::size_t seen = 0;
    for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
        std::size_t steps = 0;
        for (std::size_t at = i; at != no_member; at = tree.nodes[at].parent) {
            REQUIRE(++steps <= tree.nodes.size());
        }
        ++seen;
    }
    CHECK(seen >= 4);
    CHECK_FALSE(tree.roots.empty());
}

TEST_CASE("a process of an interpreter is its script") {
    const auto title = [](std::vector<std::string> arguments) {
        Process process;
        process.executable = "/usr/bin/python3.12";
        process.arguments = std::move(arguments);
        return process_title(process);
    };
    CHECK(title({"/usr/bin/python3", "-u", "-X", "dev", "src/train.py", "--lr", "1"}) ==
          "train.py --lr 1");
    CHECK(title({"python3", "-m", "torch.distributed.run", "x"}) == "torch.distributed.run x");
    CHECK(title({"python3", "-c", "pass"}) == "python3 -c pass");
    CHECK(title({"python3"}) == "python3");
    CHECK(title({}) == "python3.12");
    Process server;
    server.executable = "/opt/bin/server-1.2";
    server.arguments = {"/opt/bin/server", "-p", "1"};
    server.ranks = {{"RANK", "3"}};
    CHECK(process_title(server) == "rank 3: server -p 1");
}

TEST_CASE("managed and pinned memory of a process stands below the tree") {
    RunCollection run;
    run.members = {synthetic_member(10, 1, 100), synthetic_member(11, 10, 200)};
    give_device(run.members[0], "GPU-1", 1000, 1000).kinds["managed"].peak_bytes = 5 << 20;
    give_device(run.members[1], "GPU-1", 1000, 1000).kinds["pinned"].peak_bytes = 9;  // no news
    const std::string text = render_run_text(view_run("run", std::move(run)), Style());
    CHECK(text.find("Managed and pinned memory  each process's own peaks, in no figure above\n"
                    "     pid       managed        pinned\n"
                    "      10      5.00 MiB           0 B\n") != std::string::npos);
    CHECK(text.find("\n      11 ", text.find("Managed")) == std::string::npos);
}
