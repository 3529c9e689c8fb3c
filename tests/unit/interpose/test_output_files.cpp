// Where a process writes: the pattern, the exclusive claim, the fallback.
#include "interpose/process/output_files.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "interpose/process/manifest_line.hpp"
#include "tests/catch.hpp"

using namespace memlab::interpose;

namespace {

const PatternValues values{"train", "123", "node7", "3"};

// A folder that is removed at the end of the test.
class Folder {
  public:
    Folder() {
        char name[] = "/tmp/memlab-test-XXXXXX";
        path_ = mkdtemp(name);
    }
    ~Folder() {
        const int result = std::system(("rm -rf '" + path_ + "'").c_str());
        static_cast<void>(result);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

bool exists(const std::string& path) {
    return access(path.c_str(), F_OK) == 0;
}

}  // namespace

TEST_CASE("patterns") {
    CHECK(expand_pattern("memlab.%e.%p.json", values, "/w") == "/w/memlab.train.123.json");
    CHECK(expand_pattern("/out/%h/%r.json", values, "/w") == "/out/node7/3.json");
    CHECK(expand_pattern("100%%.json", values, "/w") == "/w/100%.json");
    CHECK(expand_pattern("reports/", values, "/w") == "/w/reports/memlab.train.123.json");
    PatternValues hostile = values;
    hostile.executable = "../../etc/passwd";
    CHECK(expand_pattern("%e.json", hostile, "/w") == "/w/.._.._etc_passwd.json");
    // A program's name is cut to what a file's name has room for; nothing else is.
    const std::string cut = expand_pattern(
        "d/memlab.%e.%p.json", {std::string(240, 'x') + "\xc3\xa9", "123", "", ""}, "/w");
    CHECK(cut.starts_with("/w/d/memlab.xxx"));
    CHECK(cut.ends_with("x.123.json"));
    CHECK(cut.size() - 5 <= 255 - std::string(".10000.memlog").size());
    const std::string folder(300, 'y');
    CHECK(expand_pattern(folder + "/%p.json", {"train", "123", "", ""}, "/w") ==
          "/w/" + folder + "/123.json");
}

TEST_CASE("a path that is a folder already is one") {
    const Folder folder;
    const std::string inside = "/memlab.train.123.json";
    CHECK(expand_pattern(folder.path(), values, "/w") == folder.path() + inside);
    CHECK(expand_pattern(".", values, folder.path()) == folder.path() + "/." + inside);
    CHECK(expand_pattern("a", values, folder.path()) == folder.path() + "/a");
}

TEST_CASE("a claim creates folders and the log; a second process gets another name") {
    const Folder folder;
    Settings settings;
    settings.output = folder.path() + "/a/b/%e.json";
    const ClaimedFiles first = claim_files(settings, values);
    REQUIRE(first.writer);
    CHECK(first.problem.empty());
    CHECK(first.report == folder.path() + "/a/b/train.json");
    CHECK(first.log == folder.path() + "/a/b/train.memlog");
    CHECK(exists(first.log));
    const ClaimedFiles second = claim_files(settings, values);
    REQUIRE(second.writer);
    CHECK(second.report == folder.path() + "/a/b/train.2.json");
    CHECK(second.log == folder.path() + "/a/b/train.2.memlog");
    std::ofstream(folder.path() + "/a/b/train.3.json") << "a report whose log was not kept";
    CHECK(claim_files(settings, values).report == folder.path() + "/a/b/train.4.json");
}

TEST_CASE("an unwritable path: reported, with TMPDIR as the fallback") {
    const Folder folder;
    const std::string file = folder.path() + "/file";
    std::ofstream(file) << "in the way";
    setenv("TMPDIR", folder.path().c_str(), 1);
    Settings settings;
    settings.output = file + "/under/%e.json";
    const ClaimedFiles claimed = claim_files(settings, values);
    unsetenv("TMPDIR");
    REQUIRE(claimed.writer);
    CHECK(claimed.problem.find(file) != std::string::npos);
    CHECK(claimed.report == folder.path() + "/memlab.train.123.json");
}

TEST_CASE("no writable path: reported, and nothing claimed") {
    const Folder folder;
    const std::string file = folder.path() + "/file";
    std::ofstream(file) << "in the way";
    setenv("TMPDIR", (file + "/no").c_str(), 1);
    Settings settings;
    settings.output = file + "/x.json";
    const ClaimedFiles claimed = claim_files(settings, values);
    unsetenv("TMPDIR");
    CHECK_FALSE(claimed.writer);
    CHECK(claimed.report.empty());
    CHECK(claimed.problem.find("nothing will be written") != std::string::npos);
}

TEST_CASE("the manifest gets one line per process") {
    const Folder folder;
    const std::string manifest = folder.path() + "/manifest";
    std::ofstream(manifest) << "";
    ClaimedFiles files;
    files.log = "/x/a.memlog";
    files.report = "/x/a.json";
    Settings settings;
    append_to_manifest(settings, files);
    settings.run_manifest = folder.path() + "/missing";
    append_to_manifest(settings, files);
    settings.run_manifest = manifest;
    append_to_manifest(settings, files);
    append_to_manifest(settings, files);
    std::stringstream content;
    content << std::ifstream(manifest).rdbuf();
    const std::string line = manifest_line("/x/a.memlog", "/x/a.json", true);
    CHECK(content.str() == line + line);
    CHECK_FALSE(exists(folder.path() + "/missing"));
}
