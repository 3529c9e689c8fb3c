// The doctor's reader of ELF files: this program itself, and files that are damaged.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/catch.hpp"
#include "tools/doctor/elf_file.hpp"

using namespace memlab::tools;

namespace {

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

struct TemporaryFile {
    std::string path = std::filesystem::temp_directory_path() /
                       ("memlab-elf." + std::to_string(std::random_device()()));
    explicit TemporaryFile(const std::string& text) {
        std::ofstream(path, std::ios::binary) << text;
    }
    ~TemporaryFile() { std::filesystem::remove(path); }
};

/// False if it is none.
bool ask_everything(const std::string& path) {
    const auto file = ElfFile::open(path);
    if (file == nullptr) {
        return false;
    }
    (void)file->machine();
    (void)file->is_static();
    (void)file->highest_needed("GLIBC_");
    (void)file->imports("dlopen");
    (void)file->contents("environ", 8);
    (void)file->opens_deep_bound();
    return true;
}

}  // namespace

TEST_CASE("versions") {
    CHECK(parse_version("2.36") == std::vector<int>{2, 36});
    CHECK(parse_version("2.9") < parse_version("2.36"));
    CHECK(parse_version("2.2.5") == std::vector<int>{2, 2, 5});
    CHECK(parse_version("PRIVATE").empty());
    CHECK(parse_version("2.").empty());
    CHECK(parse_version("").empty());
    CHECK(version_text({2, 36}) == "2.36");
}

TEST_CASE("this program") {
    const auto file = ElfFile::open("/proc/self/exe");
    REQUIRE(file != nullptr);
    CHECK(file->is_x86_64());
    CHECK(file->machine() == "x86-64");
    CHECK_FALSE(file->is_static());
    CHECK(file->interpreter().find("ld-linux-x86-64.so") != std::string::npos);
    CHECK(std::find(file->needed().begin(), file->needed().end(), "libc.so.6") !=
          file->needed().end());
    CHECK(file->highest_needed("GLIBC_") >= std::vector<int>{2, 2, 5});
    CHECK(file->highest_needed("NOBODY_").empty());
    CHECK_FALSE(file->exports("no_such_symbol"));
}

TEST_CASE("what is no ELF file, or none of this machine") {
    CHECK(ElfFile::open("/no/such/file") == nullptr);
    CHECK(ElfFile::open("/dev/zero") == nullptr);
    CHECK(ElfFile::open(TemporaryFile("#!/bin/sh\n" + std::string(100, ' ')).path) == nullptr);
    std::string other(sizeof(Elf64_Ehdr), '\0');
    std::memcpy(other.data(), ELFMAG, SELFMAG);
    other[EI_CLASS] = ELFCLASS64;
    other[EI_DATA] = ELFDATA2LSB;
    other[EI_VERSION] = EV_CURRENT;
    other[18] = static_cast<char>(EM_AARCH64);
    const TemporaryFile arm(other);
    const auto file = ElfFile::open(arm.path);
    REQUIRE(file != nullptr);
    CHECK_FALSE(file->is_x86_64());
    CHECK(file->machine() == "64-bit ARM");
}

TEST_CASE("damaged files are answered, not crashed on") {
    std::string original = contents("/bin/sh");
    std::mt19937 random(20260101);
    const auto byte = [&random] { return static_cast<char>(random()); };
    constexpr int rounds = 300;
    int asked = 0;
    for (int round = 0; round < rounds; ++round) {
        std::string damaged = original;
        for (int i = 0; i < 8; ++i) {
            // Headers most of all: that of the file, of the segments, of the sections.
            const std::size_t region = random() % 3 == 0 ? damaged.size() : 1024;
            damaged[random() % region] = byte();
            damaged[damaged.size() - 1 - random() % 2048] = byte();
        }
        if (round % 4 == 0) {
            damaged.resize(random() % damaged.size());
        }
        asked += ask_everything(TemporaryFile(damaged).path) ? 1 : 0;
    }
    // Most keep enough of their headers to be read on; some do not.
    CHECK(asked > 100);
    CHECK(asked < rounds);
}
