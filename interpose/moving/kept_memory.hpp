// Where the contents of chunks are kept while they are away: in host memory, or in a file that has
// no name. Nothing of either is left when the process ends, however it does.
//
// Host memory is of the ordinary kind, in huge pages where the machine has them, and forked
// children do not get it. The file is also mapped: so its contents are reachable even if the
// program closes all descriptors, as daemons do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "interpose/driver/vmm_pages.hpp"
#include "threads/mutex.hpp"
#include "trace/own_descriptor.hpp"

namespace memlab::interpose {

/// The file, as long as any part of it is used.
class KeptFile {
  public:
    KeptFile(int descriptor, void* mapping, std::uint64_t bytes)
        : descriptor_(descriptor), mapping_(mapping), bytes_(bytes) {}
    ~KeptFile();
    KeptFile(const KeptFile&) = delete;
    KeptFile& operator=(const KeptFile&) = delete;

    /// Copies between the file and memory that begins at a multiple of a page. False: not all of
    /// it.
    bool write(std::uint64_t offset, const void* from, std::size_t bytes);
    bool read(std::uint64_t offset, void* to, std::size_t bytes);

  private:
    /// -1: the program has closed it.
    int descriptor();

    threads::Mutex mutex_;
    trace::OwnDescriptor descriptor_ MEMLAB_GUARDED_BY(mutex_);
    void* const mapping_;
    const std::uint64_t bytes_;
};

/// Host memory that is there and pinned before it is needed: copies need no stage. Kept until the
/// process ends.
class PreparedMemory {
  public:
    /// In a context of the driver's that is current. On failure *problem says why.
    PreparedMemory(std::uint64_t bytes, std::string* problem);
    ~PreparedMemory();
    PreparedMemory(const PreparedMemory&) = delete;
    PreparedMemory& operator=(const PreparedMemory&) = delete;

    std::byte* memory() const { return memory_; }
    std::uint64_t bytes() const { return bytes_; }

  private:
    std::byte* memory_ = nullptr;
    const std::uint64_t bytes_;
    bool pinned_ = false;
};

/// What a chunk held. Thread-safety: copies of different parts from any thread.
class HeldContents final : public KeptContents {
  public:
    HeldContents(std::byte* memory, std::uint64_t bytes) : memory_(memory), bytes_(bytes) {}
    HeldContents(std::shared_ptr<PreparedMemory> prepared, std::uint64_t offset,
                 std::uint64_t bytes)
        : bytes_(bytes), prepared_(std::move(prepared)), offset_(offset) {}
    HeldContents(std::shared_ptr<KeptFile> file, std::uint64_t offset, std::uint64_t bytes)
        : bytes_(bytes), file_(std::move(file)), offset_(offset) {}
    ~HeldContents() override;

    /// Where the driver copies without a stage; null: it does not.
    std::byte* pinned(std::uint64_t at) const {
        return prepared_ != nullptr ? prepared_->memory() + offset_ + at : nullptr;
    }
    /// `stage` begins at a multiple of a page. False: the file failed.
    bool keep(std::uint64_t at, const void* stage, std::size_t bytes);
    bool give(std::uint64_t at, void* stage, std::size_t bytes);

  private:
    std::byte* const memory_ = nullptr;
    const std::uint64_t bytes_;
    const std::shared_ptr<KeptFile> file_;
    const std::shared_ptr<PreparedMemory> prepared_;
    const std::uint64_t offset_ = 0;
};

/// Room for the contents of several chunks, handed out from its beginning. What is not handed out
/// is given back with it. Thread-safety: none.
class KeptRoom {
  public:
    /// `folder`: of the file; empty: host memory. On failure *problem says why.
    KeptRoom(std::uint64_t bytes, const std::string& folder, std::string* problem);
    /// In prepared memory, which has enough.
    explicit KeptRoom(std::shared_ptr<PreparedMemory> prepared) : prepared_(std::move(prepared)) {}
    ~KeptRoom();
    KeptRoom(const KeptRoom&) = delete;
    KeptRoom& operator=(const KeptRoom&) = delete;

    /// The next part; no more than there is in all. May throw std::bad_alloc.
    std::unique_ptr<HeldContents> take(std::uint64_t bytes);

  private:
    std::byte* memory_ = nullptr;
    std::shared_ptr<KeptFile> file_;
    std::shared_ptr<PreparedMemory> prepared_;
    std::uint64_t bytes_ = 0;
    std::uint64_t taken_ = 0;
};

}  // namespace memlab::interpose
