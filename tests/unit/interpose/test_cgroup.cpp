// The limits of cgroups, from files that may hold anything: a folder that looks like procfs and
// like the mounted hierarchy.
#include "interpose/ledger/cgroup.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "interpose/options/small_file.hpp"
#include "tests/catch.hpp"

using namespace memlab::interpose;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t cgroup_gib = std::uint64_t{1} << 30;
constexpr const char* gpu_address = "0000:03:00.0";

class FakeTree {
  public:
    FakeTree() {
        char name[] = "/tmp/memlab-cgroup.XXXXXX";
        root_ = mkdtemp(name);
        write("proc/self/cgroup", "0::/pods/pod one/app\n");
        write("proc/self/mountinfo", mounts("/"));
        fs::create_directories(root_ / "sys/pods/pod one/app");
    }
    ~FakeTree() { fs::remove_all(root_); }
    FakeTree(const FakeTree&) = delete;
    FakeTree& operator=(const FakeTree&) = delete;

    void write(const std::string& file, const std::string& text) const {
        fs::create_directories((root_ / file).parent_path());
        std::ofstream(root_ / file, std::ios::binary) << text;
    }
    std::string mounts(const std::string& root) const {
        return "22 1 0:21 / /proc rw shared:1 - proc proc rw\n30 23 0:27 " + root + " " +
               (root_ / "sys").string() + " rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
    }
    std::string proc() const { return (root_ / "proc").string(); }
    std::optional<CgroupLimit> limit() const { return dmem_limit(own_cgroup(proc()), gpu_address); }

  private:
    fs::path root_;
};

std::string region_line(std::uint64_t value, const char* region = "drm/0000:03:00.0/vram0") {
    return std::string(region) + " " + std::to_string(value) + "\n";
}

}  // namespace

TEST_CASE("a value is of the region with the GPU's address") {
    const std::string file = "drm/0000:13:00.0/vram0 1\ndrm/0000:03:00.0/stolen 2\n" +
                             region_line(3) + "drm/0000:03:00.01/vram0 4\n";
    CHECK(dmem_value(file, gpu_address) == 3);
    CHECK(dmem_value(region_line(5, "nvidia/00000000:03:00.0"), gpu_address) == 5);
    CHECK(dmem_value(region_line(5, "a/0000:0A:00.0/b"), "0000:0a:00.0") == 5);
    CHECK(dmem_value(region_line(5, "drm/0000:03:00.0/stolen"), gpu_address) == 5);
    CHECK(dmem_value(region_line(5, "drm/10000:03:00.0/vram0"), gpu_address) == std::nullopt);
    CHECK(dmem_value(region_line(5, "drm/100000000:03:00.0/vram0"), gpu_address) == std::nullopt);
    CHECK(dmem_value(region_line(5), "") == std::nullopt);
    CHECK(dmem_value("", gpu_address) == std::nullopt);
}

TEST_CASE("host memory is bounded by the cgroup with the least room") {
    const FakeTree tree;
    const CgroupPlace place = own_cgroup(tree.proc());
    CHECK(memory_room(place) == CgroupLimit::unlimited);
    tree.write("sys/pods/pod one/app/memory.max", "max\n");
    tree.write("sys/pods/pod one/app/memory.current", "1000\n");
    CHECK(memory_room(place) == CgroupLimit::unlimited);
    tree.write("sys/pods/pod one/memory.max", "5000\n");
    tree.write("sys/pods/pod one/memory.current", "1500\n");
    CHECK(memory_room(place) == 3500);
    tree.write("sys/pods/memory.max", "2000\n");
    tree.write("sys/pods/memory.current", "2500\n");
    CHECK(memory_room(place) == 0);
}

TEST_CASE("values that are none") {
    const auto value = [](const std::string& text) {
        return dmem_value("drm/0000:03:00.0/vram0 " + text + "\n", gpu_address);
    };
    CHECK(value("0") == 0);
    CHECK(value("max") == CgroupLimit::unlimited);
    CHECK(value("9223372036854775807") == CgroupLimit::unlimited);
    CHECK(value("18446744073709551615") == CgroupLimit::unlimited);
    CHECK(value("99999999999999999999999999") == CgroupLimit::unlimited);
    for (const char* none : {"", "-1", "1.5", "0x10", "1 2", " 7", "7 ", "maximum", "1G"}) {
        INFO(none);
        CHECK(value(none) == std::nullopt);
    }
    CHECK(dmem_value("drm/0000:03:00.0/vram0", gpu_address) == std::nullopt);
    CHECK(dmem_value("drm/0000:03:00.0/vram0 12", gpu_address) == 12);  // no newline at the end
}

TEST_CASE("the tightest of all limits up to the root counts") {
    const FakeTree tree;
    CHECK(tree.limit() == std::nullopt);  // no controller
    tree.write("sys/pods/pod one/app/dmem.max", region_line(8 * cgroup_gib));
    tree.write("sys/pods/pod one/app/dmem.current", region_line(cgroup_gib));
    tree.write("sys/pods/pod one/app/dmem.min", region_line(2 * cgroup_gib));
    tree.write("sys/dmem.capacity", region_line(80 * cgroup_gib));
    REQUIRE(tree.limit());
    CHECK(tree.limit()->path == "/pods/pod one/app");
    CHECK(tree.limit()->limit == 8 * cgroup_gib);
    CHECK(tree.limit()->used == cgroup_gib);
    CHECK(tree.limit()->guaranteed == 2 * cgroup_gib);
    CHECK(tree.limit()->capacity == 80 * cgroup_gib);
    // More is allowed above, but less is left.
    tree.write("sys/pods/dmem.max", region_line(20 * cgroup_gib));
    tree.write("sys/pods/dmem.current", region_line(18 * cgroup_gib));
    CHECK(tree.limit()->path == "/pods");
    CHECK(tree.limit()->room() == 2 * cgroup_gib);
    // Less is used than the limit is above: no room is none.
    tree.write("sys/pods/dmem.current", region_line(30 * cgroup_gib));
    CHECK(tree.limit()->room() == 0);
    tree.write("sys/pods/dmem.max", "drm/0000:03:00.0/vram0 max\n");
    CHECK(tree.limit()->path == "/pods/pod one/app");
}

TEST_CASE("use without a limit is told, and a limit of nothing is one") {
    const FakeTree tree;
    tree.write("sys/pods/pod one/app/dmem.current", region_line(cgroup_gib));
    REQUIRE(tree.limit());
    CHECK(tree.limit()->limit == CgroupLimit::unlimited);
    CHECK(tree.limit()->used == cgroup_gib);
    tree.write("sys/dmem.max", region_line(0));
    CHECK(tree.limit()->path == "/");
    CHECK(tree.limit()->limit == 0);
}

TEST_CASE("a part of the hierarchy is mounted") {
    const FakeTree tree;
    tree.write("proc/self/mountinfo", tree.mounts("/pods/pod\\040one"));
    tree.write("sys/app/dmem.max", region_line(cgroup_gib));
    REQUIRE(tree.limit());
    CHECK(tree.limit()->path == "/pods/pod one/app");
    tree.write("sys/dmem.max", region_line(cgroup_gib / 2));
    CHECK(tree.limit()->path == "/pods/pod one");
    // Another part: this process's cgroup is not in it.
    tree.write("proc/self/mountinfo", tree.mounts("/pods/pod"));
    CHECK(tree.limit() == std::nullopt);
    CHECK(own_cgroup(tree.proc()).path.empty());
}

TEST_CASE("a cgroup namespace") {
    const FakeTree tree;
    tree.write("proc/self/cgroup", "0::/\n");
    tree.write("sys/dmem.max", region_line(cgroup_gib));
    REQUIRE(tree.limit());
    CHECK(tree.limit()->path == "/");
    for (const char* outside : {"0::/..\n", "0::/../other\n", "0::/a/../../b\n", "0::/a/..\n"}) {
        tree.write("proc/self/cgroup", outside);
        INFO(outside);
        CHECK(own_cgroup(tree.proc()).path.empty());
    }
}

TEST_CASE("what is no cgroup of version 2 has no limit") {
    const FakeTree tree;
    tree.write("sys/dmem.max", region_line(cgroup_gib));
    for (const std::string& text :
         {std::string(), std::string("4:memory:/a\n1:name=systemd:/a\n"), std::string("0::"),
          std::string("0::relative\n"), "0::/" + std::string(10000, 'a') + "\n",
          std::string(1 << 20, 'x'), std::string("0::/gone (deleted)\n")}) {
        tree.write("proc/self/cgroup", text);
        INFO(text.substr(0, 40));
        CHECK((!tree.limit() || tree.limit()->path == "/"));
    }
    // Both versions: the one line counts.
    tree.write("proc/self/cgroup", "4:memory:/a\n0::/\n");
    CHECK(tree.limit());
}

TEST_CASE("mounts that are none") {
    const FakeTree tree;
    tree.write("proc/self/cgroup", "0::/\n");
    for (const char* text :
         {"", " - cgroup2 ", "1 2 3 - cgroup2 x", "1 2 3 / relative - cgroup2 x y\n",
          "1 2 0:1 / /tmp/none\\777\\04 rw - cgroup2 x\n", "1 2 3 /\\ / - cgroup2 x"}) {
        tree.write("proc/self/mountinfo", text);
        INFO(text);
        CHECK(tree.limit() == std::nullopt);
    }
    fs::remove(fs::path(tree.proc()) / "self/mountinfo");
    CHECK(tree.limit() == std::nullopt);
}

TEST_CASE("files of any size and any bytes are read safely") {
    const FakeTree tree;
    tree.write("proc/self/cgroup", "0::/\n");
    std::string many;
    while (many.size() < 3 * max_cgroup_file_bytes) {
        many += "drm/0000:99:00.0/vram0 5\n";
    }
    tree.write("sys/dmem.max", region_line(cgroup_gib) + many);
    CHECK(tree.limit()->limit == cgroup_gib);
    CHECK(read_small_file(tree.proc() + "/../sys/dmem.max", max_cgroup_file_bytes).size() ==
          max_cgroup_file_bytes);
    tree.write("sys/dmem.max", many + region_line(cgroup_gib));  // beyond what is read
    CHECK(tree.limit() == std::nullopt);
    // A pipe without a writer, and a folder.
    fs::remove(fs::path(tree.proc()) / "../sys/dmem.max");
    REQUIRE(mkfifo((tree.proc() + "/../sys/dmem.max").c_str(), 0600) == 0);
    fs::create_directories(fs::path(tree.proc()) / "../sys/dmem.current");
    CHECK(tree.limit() == std::nullopt);

    std::mt19937_64 random(7);
    constexpr char letters[] = "0123456789:./ \\\nmaxdrvn-cgoup2\0";
    const auto text = [&] {
        std::string bytes;
        for (std::size_t i = random() % 200; i-- > 0;) {
            bytes += letters[random() % sizeof letters];
        }
        return bytes;
    };
    for (int i = 0; i < 20000; ++i) {
        const CgroupPlace place =
            find_cgroup("0::/" + text(), "1 2 3 / " + text() + " - cgroup2 " + text());
        CHECK(place.directory.starts_with(place.top));
        const std::string file = text() + "drm/0000:03:00.0/vram0 " + text();
        if (const auto value = dmem_value(file, gpu_address)) {
            CHECK((*value < (std::uint64_t{1} << 63) || *value == CgroupLimit::unlimited));
        }
    }
}

TEST_CASE("processes are told apart by pid namespace and cgroup") {
    const FakeTree tree;
    const auto process = [&](unsigned pid, const char* cgroup, const char* space) {
        const std::string folder = "proc/" + (pid == 0 ? "self" : std::to_string(pid));
        tree.write(folder + "/cgroup", cgroup);
        fs::create_directories(fs::path(tree.proc()) / ".." / folder / "ns");
        if (space != nullptr) {
            fs::create_symlink(space, fs::path(tree.proc()) / ".." / folder / "ns/pid");
        }
    };
    process(0, "0::/a/b\n", "pid:[1]");
    process(10, "0::/a/b\n", "pid:[1]");
    process(11, "0::/a/b/c\n", "pid:[1]");
    process(12, "0::/a/bc\n", "pid:[1]");
    process(13, "0::/a\n", "pid:[1]");
    process(14, "0::/a/b\n", "pid:[2]");
    process(15, "0::/a/b\n", nullptr);  // of another user
    process(16, "", "pid:[1]");
    CHECK(is_in_own_cgroup(10, tree.proc()) == true);
    CHECK(is_in_own_cgroup(11, tree.proc()) == true);
    CHECK(is_in_own_cgroup(12, tree.proc()) == false);
    CHECK(is_in_own_cgroup(13, tree.proc()) == false);
    CHECK(is_in_own_cgroup(14, tree.proc()) == false);
    CHECK(is_in_own_cgroup(15, tree.proc()) == true);
    CHECK(is_in_own_cgroup(16, tree.proc()) == std::nullopt);
    CHECK(is_in_own_cgroup(17, tree.proc()) == std::nullopt);  // ended
}

TEST_CASE("in the root cgroup not every process is the own one's") {
    const FakeTree tree;
    tree.write("proc/self/cgroup", "0::/\n");
    tree.write("proc/10/cgroup", "0::/\n");
    tree.write("proc/11/cgroup", "0::/other\n");
    CHECK(is_in_own_cgroup(10, tree.proc()) == true);
    CHECK(is_in_own_cgroup(11, tree.proc()) == false);
}
