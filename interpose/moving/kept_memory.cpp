#include "interpose/moving/kept_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "interpose/driver/driver.hpp"
#include "interpose/moving/own_threads.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t huge_page = 2ULL << 20;
constexpr std::uint64_t small_page = 4096;

std::string why(const char* what) {
    return std::string(what) + ": " + std::strerror(errno);
}

/// Host memory that begins at a huge page; null: there is none.
std::byte* map_host_memory(std::uint64_t bytes) {
    void* const mapped = ::mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        return nullptr;
    }
    auto* const begin = static_cast<std::byte*>(mapped);
    const std::uint64_t skip =
        (huge_page - reinterpret_cast<std::uintptr_t>(mapped) % huge_page) % huge_page;
    if (skip != 0) {
        ::munmap(begin, skip);
    }
    ::munmap(begin + skip + bytes, huge_page - skip);
    ::madvise(begin + skip, bytes, MADV_HUGEPAGE);
    ::madvise(begin + skip, bytes, MADV_DONTFORK);
    ::madvise(begin + skip, bytes, MADV_DONTDUMP);
    return begin + skip;
}

/// A file without a name; -1: not possible there.
int open_nameless(const std::string& folder) {
    constexpr mode_t owner_only = 0600;
    for (const int direct : {O_DIRECT, 0}) {
        const int file =
            ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | direct, owner_only);
        if (file >= 0) {
            return file;
        }
    }
    const int error = errno;
    const std::string path = folder + "/.memlab-kept." + std::to_string(::getpid());
    for (const int direct : {O_DIRECT, 0}) {
        const int file =
            ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | direct, owner_only);
        if (file >= 0) {
            ::unlink(path.c_str());
            return file;
        }
    }
    errno = error;
    return -1;
}

/// Room for all of it, so that writing does not fail half-way; where the file system gives none in
/// advance (NFS before 4.2) it may. An error, or 0.
int take_room(int file, off_t bytes) {
    int result = 0;
    do {
        result = ::fallocate(file, 0, 0, bytes);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
        result = ::ftruncate(file, bytes);
    }
    return result == 0 ? 0 : errno;
}

/// From mapped memory of a file that may not be readable: an access would end the process.
bool copy_mapped(const void* from, void* to, std::size_t bytes) {
    const iovec local{to, bytes};
    const iovec mapped{const_cast<void*>(from), bytes};
    const ssize_t copied = ::process_vm_readv(::getpid(), &local, 1, &mapped, 1, 0);
    if (copied < 0 && (errno == ENOSYS || errno == EPERM)) {  // not permitted here
        std::memcpy(to, from, bytes);
        return true;
    }
    return copied == static_cast<ssize_t>(bytes);
}

}  // namespace

KeptFile::~KeptFile() {
    ::munmap(mapping_, bytes_);
    const threads::LockGuard lock(mutex_);
    descriptor_.close();
}

int KeptFile::descriptor() {
    const threads::LockGuard lock(mutex_);
    return descriptor_.check() ? descriptor_.number() : -1;
}

bool KeptFile::write(std::uint64_t offset, const void* from, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
        const ssize_t written = ::pwrite(descriptor(), static_cast<const std::byte*>(from) + done,
                                         bytes - done, static_cast<off_t>(offset + done));
        if (written <= 0 && errno != EINTR) {
            return false;
        }
        done += written > 0 ? static_cast<std::size_t>(written) : 0;
    }
    return true;
}

bool KeptFile::read(std::uint64_t offset, void* to, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t count = ::pread(descriptor(), static_cast<std::byte*>(to) + done,
                                      bytes - done, static_cast<off_t>(offset + done));
        if (count == 0 || (count < 0 && errno != EINTR)) {
            break;
        }
        done += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    return done == bytes ||
           copy_mapped(static_cast<const std::byte*>(mapping_) + offset, to, bytes);
}

PreparedMemory::PreparedMemory(std::uint64_t bytes, std::string* problem) : bytes_(bytes) {
    memory_ = map_host_memory(bytes);
    if (memory_ == nullptr) {
        *problem = why("no host memory");
        return;
    }
    // Each touches pages until all are there.
    constexpr std::uint64_t step = std::uint64_t{64} << 20;
    std::atomic<std::uint64_t> next{0};
    in_own_threads([&] {
        for (std::uint64_t at = next.fetch_add(step); at < bytes; at = next.fetch_add(step)) {
            const std::uint64_t end = std::min(at + step, bytes);
            for (std::uint64_t page = at; page < end; page += small_page) {
                memory_[page] = std::byte{0};
            }
        }
    });
    const CUresult result = call_real(&Driver::cuMemHostRegister_v2, static_cast<void*>(memory_),
                                      std::size_t{bytes}, unsigned{CU_MEMHOSTREGISTER_PORTABLE});
    pinned_ = result == CUDA_SUCCESS;
    if (!pinned_) {
        *problem = "the memory could not be pinned (error " + std::to_string(result) + ")";
    }
}

PreparedMemory::~PreparedMemory() {
    if (pinned_) {
        call_real(&Driver::cuMemHostUnregister, static_cast<void*>(memory_));
    }
    if (memory_ != nullptr) {
        ::munmap(memory_, bytes_);
    }
}

HeldContents::~HeldContents() {
    if (memory_ != nullptr) {
        ::munmap(memory_, bytes_);
    }
}

bool HeldContents::keep(std::uint64_t at, const void* stage, std::size_t bytes) {
    if (file_ != nullptr) {
        return file_->write(offset_ + at, stage, bytes);
    }
    std::memcpy(memory_ + at, stage, bytes);
    return true;
}

bool HeldContents::give(std::uint64_t at, void* stage, std::size_t bytes) {
    if (file_ != nullptr) {
        return file_->read(offset_ + at, stage, bytes);
    }
    std::memcpy(stage, memory_ + at, bytes);
    return true;
}

KeptRoom::KeptRoom(std::uint64_t bytes, const std::string& folder, std::string* problem)
    : bytes_(bytes) {
    if (bytes == 0) {
        return;
    }
    if (folder.empty()) {
        memory_ = map_host_memory(bytes);
        if (memory_ == nullptr) {
            *problem = why("no host memory");
        }
        return;
    }
    const int file = open_nameless(folder);
    if (file < 0) {
        *problem = why(("no file can be made in " + folder).c_str());
        return;
    }
    if (const int error = take_room(file, static_cast<off_t>(bytes)); error != 0) {
        errno = error;
        *problem = why(("no room in " + folder).c_str());
        ::close(file);
        return;
    }
    void* const mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED) {
        *problem = why("the file cannot be mapped");
        ::close(file);
        return;
    }
    ::madvise(mapping, bytes, MADV_DONTFORK);
    file_ = std::make_shared<KeptFile>(file, mapping, bytes);
}

KeptRoom::~KeptRoom() {
    if (memory_ != nullptr && taken_ < bytes_) {
        ::munmap(memory_ + taken_, bytes_ - taken_);
    }
}

std::unique_ptr<HeldContents> KeptRoom::take(std::uint64_t bytes) {
    std::unique_ptr<HeldContents> part =
        prepared_ != nullptr ? std::make_unique<HeldContents>(prepared_, taken_, bytes)
        : file_ != nullptr   ? std::make_unique<HeldContents>(file_, taken_, bytes)
                             : std::make_unique<HeldContents>(memory_ + taken_, bytes);
    taken_ += bytes;
    return part;
}

}  // namespace memlab::interpose
