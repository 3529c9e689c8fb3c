// What /proc says, from a procfs that the tests make.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"
#include "tools/live/process_facts.hpp"

namespace memlab::tools {
namespace {

namespace fs = std::filesystem;

class FakeProc {
  public:
    FakeProc() {
        char name[] = "/tmp/memlab-test.XXXXXX";
        root_ = mkdtemp(name);
        write("stat", "cpu 1 2 3\nbtime 1700000000\n");
        process(1, "systemd", 0, 'S', 1, "/sbin/init");
        process(77, "bash", 1, 'S', 77, "bash");
    }
    ~FakeProc() { fs::remove_all(root_); }
    FakeProc(const FakeProc&) = delete;
    FakeProc& operator=(const FakeProc&) = delete;

    void process(int pid, const std::string& name, int parent, char state, int group,
                 const std::string& command) {
        const std::string folder = std::to_string(pid);
        fs::create_directories(root_ + "/" + folder + "/fd");
        fs::create_directories(root_ + "/" + folder + "/task/" + folder);
        write(folder + "/stat", folder + " (" + name + ") " + state + " " + std::to_string(parent) +
                                    " " + std::to_string(group) +
                                    " 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 200 0 0");
        std::string arguments = command + '\0';
        for (char& c : arguments) {
            c = c == ' ' ? '\0' : c;
        }
        write(folder + "/cmdline", command.empty() ? "" : arguments);
    }
    void write(const std::string& file, const std::string& text) {
        std::ofstream(root_ + "/" + file) << text;
    }
    void open(int pid, int descriptor, const std::string& target) {
        fs::create_symlink(target,
                           root_ + "/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor));
    }
    const std::string& root() const { return root_; }

  private:
    std::string root_;
};

TEST_CASE("a process's facts are those of /proc", "[live]") {
    FakeProc proc;
    proc.process(200, "python3) (x", 77, 'S', 200, "python3 train.py --epochs 3");
    proc.write("200/cgroup", "0::/user.slice/a.scope\n");
    ProcessTable table(proc.root());
    const ProcessFacts facts = table.of(200);
    CHECK(facts.visible);
    CHECK(facts.name == "python3) (x");
    CHECK(facts.parent == 77);
    CHECK(facts.command == "python3 train.py --epochs 3");
    CHECK(facts.parent_command == "bash");
    CHECK(facts.cgroup == "/user.slice/a.scope");
    CHECK(facts.container.empty());
    CHECK(facts.start_wall_ns == 1'700'000'002'000'000'000);
    CHECK_FALSE(facts.parent_gone);
    CHECK_FALSE(facts.zombie);
    CHECK(table.start_ticks(200) == facts.start_ticks);
    CHECK(table.start_ticks(201) == 0);
    CHECK_FALSE(table.of(201).visible);
}

TEST_CASE("what is left of a program that has ended is told", "[live]") {
    FakeProc proc;
    proc.process(300, "pt_data_worker", 1, 'S', 250, "python3 train.py");
    proc.process(301, "python3", 77, 'Z', 301, "");
    proc.process(302, "python3", 77, 'Z', 302, "");
    fs::create_directories(proc.root() + "/302/task/303");
    ProcessTable table(proc.root());
    const ProcessFacts worker = table.of(300);
    CHECK(worker.worker);
    CHECK(worker.parent_gone);
    CHECK(worker.leader_gone);
    const ProcessFacts zombie = table.of(301);
    CHECK(zombie.zombie);
    CHECK_FALSE(zombie.threads_left);
    CHECK(zombie.command == "[python3]");
    CHECK(table.of(302).threads_left);
}

TEST_CASE("a process whose threads exit or have a SIGKILL is ending", "[live]") {
    const std::string exiting = "1 0 -1 4228100 0 0";
    const std::string running = "1 0 -1 4228096 0 0";
    FakeProc proc;
    const auto thread = [&](const std::string& task, const std::string& flags,
                            const std::string& pending) {
        fs::create_directories(proc.root() + "/302/task/" + task);
        proc.write("302/task/" + task + "/stat", task + " (python3) S 77 302 " + flags);
        proc.write("302/task/" + task + "/status", "Name:\tpython3\nSigPnd:\t" + pending + "\n");
    };
    proc.process(302, "python3", 77, 'Z', 302, "");
    ProcessTable table(proc.root());
    CHECK_FALSE(table.of(302).is_ending);
    thread("303", exiting, "0000000000000000");
    thread("304", running, "0000000000000100");
    CHECK(table.of(302).is_ending);
    thread("305", running, "0000000000000200");
    CHECK(table.of(302).threads_left);
    CHECK_FALSE(table.of(302).is_ending);
}

TEST_CASE("a program that is process 1 of a container has not ended", "[live]") {
    FakeProc proc;
    proc.process(1, "python3", 0, 'S', 1, "python3 train.py");
    proc.process(20, "python3", 1, 'S', 1, "python3 train.py");
    ProcessTable table(proc.root());
    CHECK_FALSE(table.of(20).parent_gone);
    CHECK_FALSE(table.of(1).parent_gone);
}

TEST_CASE("containers are known by their cgroups", "[live]") {
    const std::string id(64, 'a');
    CHECK(container_of("/system.slice/docker-" + id + ".scope") == "aaaaaaaaaaaa");
    CHECK(container_of("/docker/" + id) == "aaaaaaaaaaaa");
    CHECK(container_of("/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope") ==
          "aaaaaaaaaaaa");
    CHECK(container_of("/lxc.payload.web/init.scope") == "web");
    CHECK(container_of("/machine.slice/machine-db.scope") == "db");
    CHECK(container_of("/user.slice/user-1000.slice").empty());
    CHECK(container_of("").empty());
}

TEST_CASE("processes with the driver's files open are found", "[live]") {
    FakeProc proc;
    proc.process(400, "python3", 77, 'S', 400, "python3 train.py");
    proc.open(400, 3, "/dev/nvidiactl");
    proc.open(400, 4, "/dev/nvidia-uvm");
    proc.open(400, 5, "/dev/nvidia1");
    proc.open(400, 6, "/dev/nvidia1");
    proc.open(400, 7, "/dev/nvidia0");
    proc.process(401, "nvidia-smi", 77, 'S', 401, "nvidia-smi");
    proc.open(401, 3, "/dev/nvidiactl");
    const std::vector<OpenDevices> open = ProcessTable(proc.root()).with_open_devices();
    REQUIRE(open.size() == 1);
    CHECK(open[0].pid == 400);
    CHECK(open[0].uvm);
    CHECK(open[0].minors == std::vector<unsigned>{0, 1});
}

}  // namespace
}  // namespace memlab::tools
