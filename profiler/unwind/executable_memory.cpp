#include "profiler/unwind/executable_memory.hpp"

#include <fcntl.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <ctime>

#include "profiler/unwind/stack_memory.hpp"

namespace memlab::profiler::unwind {
namespace {

// Of code that runs in user space; what lies above is the kernel's or no address at all.
constexpr unsigned address_bits = 56;

// A page, whether it may be executed, and the second in which that was asked; 0: none. Written and
// read whole.
constexpr std::size_t known_count = 256;
constinit std::array<std::atomic<std::uint64_t>, known_count> known_pages{};
constexpr unsigned second_bits = 16;
constexpr std::uint64_t second_mask = (std::uint64_t{1} << second_bits) - 1;

std::uint64_t page_number(std::uintptr_t address) {
    return address / page_size;
}

// The lines of /proc/self/maps begin with "start-end rwxp". They are read without the C library's
// streams and without its cancellation points: this runs in anybody's signal handler.
enum class Executable : std::uint8_t { no, yes, unknown };

class MapsReader {
  public:
    explicit MapsReader(std::uintptr_t address) : address_(address) {}

    /// True once there is nothing left to look for.
    bool take(char letter) {
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
                column_ = Column::rights;
                rights_ = 0;
                return address_ < start_;  // they are in order
            case Column::rights:
                if (address_ < value_ && ++rights_ == 3) {
                    found_ = letter == 'x';
                    return true;
                }
                column_ = address_ < value_ ? Column::rights : Column::rest;
                return false;
            case Column::rest:
                break;
        }
        return false;
    }
    bool found() const { return found_; }

  private:
    enum class Column : std::uint8_t { start, end, rights, rest };

    void add_digit(char letter) {
        const auto digit = static_cast<unsigned char>(letter);
        value_ = value_ << 4 |
                 static_cast<std::uintptr_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }

    const std::uintptr_t address_;
    std::uintptr_t value_ = 0;
    std::uintptr_t start_ = 0;
    unsigned rights_ = 0;
    Column column_ = Column::start;
    bool found_ = false;
};

__attribute__((noinline)) Executable ask_the_kernel(std::uintptr_t address) {
    static constexpr char path[] = "/proc/self/maps";
    const long file =
        plain_system_call(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD),
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
        size = plain_system_call(SYS_read, descriptor,
                                 reinterpret_cast<std::uintptr_t>(buffer.data()), buffer.size(), 0);
        if (size == -EINTR) {
            continue;
        }
        if (size <= 0) {
            break;
        }
        for (long i = 0; i < size && !done; ++i) {
            done = reader.take(buffer[static_cast<std::size_t>(i)]);
        }
    }
    plain_system_call(SYS_close, descriptor, 0, 0, 0);
    if (size < 0) {
        return Executable::unknown;
    }
    return reader.found() ? Executable::yes : Executable::no;
}

std::uint64_t now_in_seconds() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) & second_mask;
}

}  // namespace

bool is_behind_call(std::uintptr_t address) {
    std::uintptr_t word = 0;
    const StackMemory nothing_known;
    if (address >> address_bits != 0 || address < page_size ||
        !nothing_known.read(address - sizeof word, &word)) {
        return false;
    }
    // The byte that lies so far before the address.
    const auto byte = [word](unsigned back) {
        return static_cast<std::uint8_t>(word >> (8 * (sizeof word - back)));
    };
    // ff /2: the operand's form says how long the instruction is.
    const auto is_indirect = [&byte](unsigned length) {
        if (byte(length) != 0xff || (byte(length - 1) & 0x38U) != 0x10) {
            return false;
        }
        const unsigned form = byte(length - 1) >> 6;
        const unsigned base = byte(length - 1) & 7U;
        if (form == 3) {
            return length == 2;
        }
        const unsigned index_byte = base == 4 ? 1 : 0;
        const bool no_base =
            form == 0 && (base == 5 || (base == 4 && (byte(length - 2) & 7U) == 5));
        const unsigned offset = form == 2 || no_base ? 4 : form;
        return length == 2 + index_byte + offset;
    };
    if (byte(5) == 0xe8) {
        return true;
    }
    for (const unsigned length : {2U, 3U, 4U, 6U, 7U}) {
        if (is_indirect(length)) {
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
    const std::uint64_t now = now_in_seconds();
    if (is_known && ((now - (word & second_mask)) & second_mask) < 2) {
        return false;
    }
    const Executable answer = ask_the_kernel(address);
    if (answer == Executable::unknown) {
        return true;
    }
    const std::uint64_t executable = answer == Executable::yes ? 1 : 0;
    known.store(page << (second_bits + 1) | executable << second_bits | now,
                std::memory_order_relaxed);
    return executable != 0;
}

}  // namespace memlab::profiler::unwind
