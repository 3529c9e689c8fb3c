#include "profiler/unwind/executable_memory.hpp"

#include <fcntl.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <ctime>

#include "profiler/unwind/modules.hpp"
#include "profiler/unwind/stack_memory.hpp"

namespace memlab::profiler::unwind {
namespace {

// Of user space addresses (five-level paging); those above are the kernel's or not canonical.
constexpr unsigned address_bits = 56;

// Cache entries of one atomic word: page number, executable bit, second of the query; 0: empty.
constexpr std::size_t known_count = 256;
constinit std::array<std::atomic<std::uint64_t>, known_count> known_pages{};
constexpr unsigned second_bits = 16;
constexpr std::uint64_t second_mask = (std::uint64_t{1} << second_bits) - 1;

std::uint64_t page_number(std::uintptr_t address) {
    return address / page_size;
}

// Parses /proc/self/maps, whose lines begin with "start-end rwxp". Without the C library's streams
// and cancellation points: this runs in signal handlers.
enum class Executable : std::uint8_t { no, yes, unknown };

class MapsReader {
  public:
    explicit MapsReader(std::uintptr_t address) : address_(address) {}

    /// Consumes one character; true once the result is known.
    bool consume(char letter) {
        if (letter == '\n') {
            column_ = Column::start;
            value_ = 0;
            return false;
        }
        switch (column_) {
            case Column::start:
                if (letter == '-') {
                    start_ = value_;
                    value_ = 0;
                    column_ = Column::end;
                } else {
                    add_digit(letter);
                }
                return false;
            case Column::end:
                if (letter != ' ') {
                    add_digit(letter);
                    return false;
                }
                column_ = Column::permissions;
                permission_ = 0;
                return address_ < start_;  // lines are sorted
            case Column::permissions:
                if (address_ < value_ && ++permission_ == 3) {
                    executable_ = letter == 'x';
                    return true;
                }
                column_ = address_ < value_ ? Column::permissions : Column::rest;
                return false;
            case Column::rest:
                break;
        }
        return false;
    }
    bool executable() const { return executable_; }

  private:
    enum class Column : std::uint8_t { start, end, permissions, rest };

    void add_digit(char letter) {
        const auto digit = static_cast<unsigned char>(letter);
        value_ = value_ << 4 |
                 static_cast<std::uintptr_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }

    const std::uintptr_t address_;
    std::uintptr_t value_ = 0;
    std::uintptr_t start_ = 0;
    unsigned permission_ = 0;
    Column column_ = Column::start;
    bool executable_ = false;
};

__attribute__((noinline)) Executable read_maps(std::uintptr_t address) {
    static constexpr char path[] = "/proc/self/maps";
    const long file = raw_syscall(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD),
                                  reinterpret_cast<std::uintptr_t>(path), O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) {
        return Executable::unknown;
    }
    const auto descriptor = static_cast<std::uintptr_t>(file);
    MapsReader reader(address);
    std::array<char, 1024> buffer;
    bool done = false;
    long size = 0;
    while (!done) {
        size = raw_syscall(SYS_read, descriptor, reinterpret_cast<std::uintptr_t>(buffer.data()),
                           buffer.size(), 0);
        if (size == -EINTR) {
            continue;
        }
        if (size <= 0) {
            break;
        }
        for (long i = 0; i < size && !done; ++i) {
            done = reader.consume(buffer[static_cast<std::size_t>(i)]);
        }
    }
    raw_syscall(SYS_close, descriptor, 0, 0, 0);
    if (size < 0) {
        return Executable::unknown;
    }
    return reader.executable() ? Executable::yes : Executable::no;
}

std::uint64_t coarse_seconds() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) & second_mask;
}

}  // namespace

// A JIT compiler frees its code while other threads are in calls below it.
bool read_code(std::uintptr_t address, std::uintptr_t* word) {
    return classify_address(address) == AddressKind::no_object ? read_at_once(address, word)
                                                               : StackMemory().read(address, word);
}

bool follows_call(std::uintptr_t address) {
    if (address >> address_bits != 0 || address < page_size) {
        return false;
    }
    std::uintptr_t word = 0;
    if (!read_code(address - sizeof word, &word)) {
        return false;
    }
    // The byte at address - back.
    const auto byte = [word](unsigned back) {
        return static_cast<std::uint8_t>(word >> (8 * (sizeof word - back)));
    };
    // call r/m64 (ff /2), whose length follows from the ModRM and SIB bytes.
    const auto is_indirect_call = [&byte](unsigned length) {
        if (byte(length) != 0xff || (byte(length - 1) & 0x38U) != 0x10) {
            return false;
        }
        const unsigned mod = byte(length - 1) >> 6;
        const unsigned rm = byte(length - 1) & 7U;
        if (mod == 3) {
            return length == 2;
        }
        const unsigned sib_size = rm == 4 ? 1 : 0;
        const bool no_base = mod == 0 && (rm == 5 || (rm == 4 && (byte(length - 2) & 7U) == 5));
        const unsigned displacement_size = mod == 2 || no_base ? 4 : mod;
        return length == 2 + sib_size + displacement_size;
    };
    if (byte(5) == 0xe8) {  // call rel32
        return true;
    }
    for (const unsigned length : {2U, 3U, 4U, 6U, 7U}) {
        if (is_indirect_call(length)) {
            return true;
        }
    }
    return false;
}

bool is_executable(std::uintptr_t address) {
    if (address >> address_bits != 0) {
        return false;
    }
    const std::uint64_t page = page_number(address);
    std::atomic<std::uint64_t>& known = known_pages[page % known_count];
    const std::uint64_t word = known.load(std::memory_order_relaxed);
    const bool is_known = word != 0 && word >> (second_bits + 1) == page;
    if (is_known && (word >> second_bits & 1U) != 0) {
        return true;
    }
    const std::uint64_t now = coarse_seconds();
    if (is_known && ((now - (word & second_mask)) & second_mask) < 2) {
        return false;
    }
    const Executable answer = read_maps(address);
    if (answer == Executable::unknown) {
        return true;
    }
    const std::uint64_t executable = answer == Executable::yes ? 1 : 0;
    known.store(page << (second_bits + 1) | executable << second_bits | now,
                std::memory_order_relaxed);
    return executable != 0;
}

}  // namespace memlab::profiler::unwind
