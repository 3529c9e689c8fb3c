// Reads what an ELF file says of itself, without running it: how it is linked, what it needs of
// which libc, its symbols, and how it calls dlopen. Files are not trusted: libelf checks what it
// reads, and this each offset beside it.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct Elf;

namespace memlab::tools {

/// Thread-safety: none is needed; all functions are const.
class ElfFile {
  public:
    /// Null when it cannot be read, or is no ELF file.
    static std::unique_ptr<ElfFile> open(const std::string& path);
    ~ElfFile();
    ElfFile(const ElfFile&) = delete;
    ElfFile& operator=(const ElfFile&) = delete;

    /// 64-bit code for x86-64. Of any other file only these facts are known.
    bool is_x86_64() const { return x86_64_; }
    /// "32-bit x86", "64-bit ARM", "machine 243".
    std::string machine() const;

    /// The program's loader; empty: it has none.
    const std::string& interpreter() const { return interpreter_; }
    /// A program that is loaded by nobody, so that nothing can be preloaded.
    bool is_static() const { return interpreter_.empty() && needed_.empty(); }
    /// What it is linked with, as it names them.
    const std::vector<std::string>& needed() const { return needed_; }

    /// The highest version of `prefix` ("GLIBC_") that it needs of another library: {2, 36}. Empty:
    /// there is none.
    std::vector<int> highest_needed(std::string_view prefix) const;

    bool imports(std::string_view symbol) const;
    bool exports(std::string_view symbol) const;
    /// Whether it calls a function, which may be its own, by what the loader finds for the name.
    bool calls_through_loader(std::string_view symbol) const;
    /// The contents of an exported variable, at most `bytes`; empty when there is none, or only
    /// memory without contents in the file.
    std::span<const std::byte> contents(std::string_view symbol, std::size_t bytes) const;

    /// Whether code of it calls dlopen with RTLD_DEEPBIND among constant flags: the libraries that
    /// it opens so bypass every preload. Only calls through its own import are seen.
    bool opens_deep_bound() const;

  private:
    ElfFile() = default;
    bool read_headers();
    void read_dynamic(const Elf64_Phdr& segment);
    std::span<const std::byte> part(std::uint64_t offset, std::uint64_t size) const;
    std::span<const std::byte> at_address(std::uint64_t address, std::uint64_t size) const;
    std::string_view text(std::span<const std::byte> strings, std::uint64_t offset) const;

    Elf* elf_ = nullptr;
    std::span<const std::byte> bytes_;
    bool x86_64_ = false;
    bool is_64_bit_ = false;
    std::uint16_t machine_ = 0;
    std::string interpreter_;
    std::vector<std::string> needed_;
    std::vector<Elf64_Phdr> segments_;
};

/// {2, 36} for the digits of "2.36"; empty when it is no version.
std::vector<int> parse_version(std::string_view text);
/// "2.36"
std::string version_text(const std::vector<int>& version);

}  // namespace memlab::tools
