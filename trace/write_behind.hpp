// Writes a growing file from a thread of its own, for file systems where that takes long: the
// program whose events are recorded waits for no write, though the server of a network file system
// may hang for minutes. What is appended lies in memory until the thread has written it, some
// milliseconds later and many records at a time; a SIGKILL takes that along. Of at most 4 MiB:
// where the file system takes that long, append() is refused.
//
// The thread blocks all signals, and uses neither the heap nor anything else of the program's.
#pragma once

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "trace/own_descriptor.hpp"

namespace memlab::trace {

/// `size` bytes over what is in the file at `offset`, the one at `last` after all others: the bytes
/// around it in a call or two, then itself. A failure leaves it unwritten.
void write_over(int descriptor, std::uint64_t offset, const std::uint8_t* data, std::size_t size,
                std::size_t last);

/// Thread-safety: one thread at a time, beside its own.
class WriteBehind {
  public:
    /// Null: no memory, or no thread could be made; `file` is then as it was. `size` is the file's.
    static WriteBehind* start(const OwnDescriptor& file, std::uint64_t size);

    WriteBehind(const WriteBehind&) = delete;
    WriteBehind& operator=(const WriteBehind&) = delete;

    /// How many bytes may wait to be written.
    static constexpr std::size_t capacity = std::size_t{4} << 20;

    enum class Outcome : std::uint8_t {
        appended,
        full,    ///< the file system is too slow
        failed,  ///< see failure()
    };
    /// Appends, if `spare` more bytes would still find room. `events`: how many the bytes are.
    Outcome append(const std::uint8_t* data, std::size_t size, std::size_t spare, unsigned events);

    /// Over bytes that were appended and may be in the file already.
    void patch(std::uint64_t offset, const std::uint8_t* data, std::size_t size, std::size_t last);

    /// The CRC-32C of bytes that were appended, among the last 4 MiB.
    bool checksum(std::uint64_t offset, std::size_t size, std::uint32_t* sum) const;

    /// The file takes no more. It was cut to whole appends, `size` bytes in all; `lost_events` were
    /// appended and are not among them. From now on append() takes bytes that follow there, up to
    /// 1 KiB in all, which are written if that is possible.
    struct Failure {
        int error_number = 0;  ///< 0: the descriptor is not ours any more
        std::uint64_t size = 0;
        std::uint64_t lost_events = 0;
    };
    Failure give_up();

    /// Has all of it in the file and closes it, within `patience_ns`; frees the memory. 0, the
    /// errno of a failure that give_up() did not tell (EBADF: the descriptor is not ours any more),
    /// or ETIMEDOUT: then the thread is left to go on with it.
    static int finish(WriteBehind* self, std::uint64_t patience_ns);

  private:
    explicit WriteBehind(const OwnDescriptor& file, std::uint64_t size);
    static void* run(void* self);
    void loop();
    bool drain();
    bool write_up_to(std::uint64_t end);
    void write_tail();
    void cut_back();
    const std::uint8_t* at(std::uint64_t offset) const { return ring_ + offset % capacity; }

    struct Place {
        std::uint64_t offset = 0;
        std::uint64_t events = 0;
    };
    struct Patch {
        std::uint64_t offset;
        std::uint8_t size;
        std::uint8_t last;
        std::array<std::uint8_t, 14> bytes;
    };

    static constexpr std::size_t mapping_size = capacity + 16384;  // and an object of this class
    static constexpr std::size_t place_distance = 16384;
    static constexpr std::size_t max_patches = 128;
    static constexpr std::size_t tail_capacity = 1024;

    OwnDescriptor file_;
    std::uint8_t* ring_ = nullptr;
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // never held in a system call
    pthread_cond_t changed_{};
    bool idle_ = false;  ///< the thread waits for the first append
    bool finishing_ = false;
    bool finished_ = false;
    int close_error_ = 0;

    // Offsets in the file, and events up to there.
    std::uint64_t appended_;
    std::uint64_t appended_events_ = 0;
    std::uint64_t written_;
    std::uint64_t written_events_ = 0;
    std::uint64_t writing_;  ///< up to here the thread may have read the ring
    /// Ends of appends, here and there: where the file may be cut. Filled from the front again.
    std::array<Place, 512> places_{};
    std::size_t place_count_ = 0;
    std::array<Patch, max_patches> patches_{};
    std::size_t patch_count_ = 0;

    bool failed_ = false;
    bool given_up_ = false;
    int error_number_ = 0;
    std::array<std::uint8_t, tail_capacity> tail_{};
    std::size_t tail_size_ = 0;
    bool tail_changed_ = false;
};

}  // namespace memlab::trace
