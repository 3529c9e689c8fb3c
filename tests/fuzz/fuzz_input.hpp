// What the fuzzers have in common: a demand that ends the run, bytes as an open event log, and
// bytes as a file, for readers that take paths.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/log_format.hpp"

namespace memlab::fuzz {

inline void require(bool condition) {
    if (!condition) {
        __builtin_trap();
    }
}

/// The bytes as records of an open block: no checksum keeps the fuzzer out.
inline std::vector<std::uint8_t> as_open_log(const std::uint8_t* data, std::size_t size) {
    std::vector<std::uint8_t> log(trace::format::magic,
                                  trace::format::magic + sizeof trace::format::magic);
    log.resize(trace::format::file_header_size);
    log[sizeof trace::format::magic] = trace::format::version;
    log.push_back(trace::format::block_tag);
    log.resize(trace::format::file_header_size + trace::format::block_header_size);
    log.insert(log.end(), data, data + size);
    return log;
}

/// A file of these bytes that lies in memory.
class MemoryFile {
  public:
    MemoryFile(const std::uint8_t* data, std::size_t size)
        : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
        require(descriptor_ >= 0);
        for (std::size_t done = 0; done < size;) {
            const ssize_t written = ::write(descriptor_, data + done, size - done);
            require(written > 0);
            done += static_cast<std::size_t>(written);
        }
    }
    ~MemoryFile() { ::close(descriptor_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

  private:
    int descriptor_;
};

}  // namespace memlab::fuzz
