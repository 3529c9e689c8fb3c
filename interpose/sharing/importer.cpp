#include "interpose/sharing/importer.hpp"

#include <unistd.h>

#include <algorithm>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/vmm_pages.hpp"
#include "interpose/sharing/exporter.hpp"
#include "profiler/clock.hpp"
#include "threads/no_cancellation.hpp"

namespace memlab::interpose {
namespace {

// Ends a reservation whose first `mapped` bytes have memory.
void unmap(CUdeviceptr begin, std::uint64_t mapped, std::uint64_t reserved) {
    if (mapped != 0) {
        call_real(&Driver::cuMemUnmap, begin, std::size_t{mapped});
    }
    call_real(&Driver::cuMemAddressFree, begin, std::size_t{reserved});
}

// Addresses with the chunks that were mapped so far; undone unless kept.
class Mapping {
  public:
    ~Mapping() {
        if (begin_ != 0 && !kept_) {
            unmap(begin_, mapped_, bytes_);
        }
    }
    Mapping() = default;
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    CUresult reserve(std::uint64_t bytes) {
        bytes_ = bytes;
        return call_real(&Driver::cuMemAddressReserve, &begin_, std::size_t{bytes}, std::size_t{0},
                         CUdeviceptr{0}, 0ULL);
    }

    CUresult add(int descriptor, std::uint64_t bytes) {
        if (bytes == 0 || bytes > bytes_ - mapped_) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        CUmemGenericAllocationHandle handle = 0;
        CUresult result = call_real(&Driver::cuMemImportFromShareableHandle, &handle,
                                    reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        if (result == CUDA_SUCCESS) {
            result = call_real(&Driver::cuMemMap, begin_ + mapped_, std::size_t{bytes},
                               std::size_t{0}, handle, 0ULL);
            call_real(&Driver::cuMemRelease, handle);
        }
        mapped_ += result == CUDA_SUCCESS ? bytes : 0;
        return result;
    }

    CUresult allow(CUdevice device) {
        const CUmemAccessDesc access = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        return call_real(&Driver::cuMemSetAccess, begin_, std::size_t{bytes_}, &access,
                         std::size_t{1});
    }

    void keep() { kept_ = true; }
    bool complete() const { return begin_ != 0 && mapped_ == bytes_; }
    CUdeviceptr begin() const { return begin_; }

  private:
    CUdeviceptr begin_ = 0;
    std::uint64_t bytes_ = 0;
    std::uint64_t mapped_ = 0;
    bool kept_ = false;
};

}  // namespace

Importer& importer() {
    static auto& once = *new Importer;
    return once;
}

CUresult Importer::open(const SharedHandle& handle, Import* import) {
    const threads::NoCancellation no_cancellation;
    const CUdevice device = current_device();
    if (device < 0 || exporter().made(handle)) {  // the driver cannot open its own handles either
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    const threads::LockGuard opening(opening_);
    {
        const threads::LockGuard lock(mutex_);
        for (Import& open : imports_) {
            if (open.handle == handle && open.device == device) {
                ++open.opens;
                *import = open;
                return CUDA_SUCCESS;
            }
        }
        imports_.reserve(imports_.size() + 1);
    }
    import->handle = handle;
    import->device = device;
    import->opens = 1;
    const CUresult result = open_new(handle, import);
    if (result == CUDA_SUCCESS) {
        const threads::LockGuard lock(mutex_);
        imports_.push_back(*import);
        count_.store(imports_.size(), std::memory_order_release);
    }
    return result;
}

CUresult Importer::open_new(const SharedHandle& handle, Import* import) {
    const std::uint64_t deadline = profiler::monotonic_ns() + sharing_deadline_ns;
    MemorySocket socket(MemorySocket::connect_to(handle.socket, deadline), deadline);
    std::int32_t process = 0;
    if (!socket.peer_is_own(&process) || process != handle.process ||
        !socket.send_request(encode(handle))) {
        return CUDA_ERROR_MAP_FAILED;
    }
    Mapping mapping;
    while (!mapping.complete()) {
        Parts parts;
        int descriptors[Parts::max_parts];
        if (!socket.receive_parts(&parts, descriptors)) {
            return CUDA_ERROR_MAP_FAILED;
        }
        auto result = static_cast<CUresult>(parts.result);
        if (result == CUDA_SUCCESS && mapping.begin() == 0) {
            import->bytes = parts.bytes;
            result = parts.offset < parts.bytes && handle.bytes <= parts.bytes - parts.offset
                         ? mapping.reserve(parts.bytes)
                         : CUDA_ERROR_INVALID_HANDLE;
            import->begin = mapping.begin();
            import->address = mapping.begin() + parts.offset;
        }
        for (std::uint32_t i = 0; i < parts.count; ++i) {
            if (result == CUDA_SUCCESS) {
                result = mapping.add(descriptors[i], parts.sizes[i]);
            }
            ::close(descriptors[i]);
        }
        if (result != CUDA_SUCCESS || parts.count == 0) {
            return result != CUDA_SUCCESS ? result : CUDA_ERROR_MAP_FAILED;
        }
    }
    const CUresult result = mapping.allow(import->device);
    if (result == CUDA_SUCCESS) {
        mapping.keep();
    }
    return result;
}

std::optional<Importer::Import> Importer::find(CUdeviceptr address) const {
    if (count_.load(std::memory_order_acquire) == 0) {
        return std::nullopt;
    }
    const threads::LockGuard lock(mutex_);
    for (const Import& import : imports_) {
        if (address - import.address < import.handle.bytes) {
            return import;
        }
    }
    return std::nullopt;
}

CUresult Importer::close(CUdeviceptr address, bool* last) {
    const threads::NoCancellation no_cancellation;
    const threads::LockGuard opening(opening_);
    Import import;
    {
        const threads::LockGuard lock(mutex_);
        const auto found =
            std::find_if(imports_.begin(), imports_.end(),
                         [address](const Import& each) { return each.address == address; });
        if (found == imports_.end()) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *last = --found->opens == 0;
        if (!*last) {
            return CUDA_SUCCESS;
        }
        import = *found;
        *found = imports_.back();
        imports_.pop_back();
        count_.store(imports_.size(), std::memory_order_release);
    }
    const CUresult waited = call_real(&Driver::cuCtxSynchronize);
    unmap(import.begin, import.bytes, import.bytes);
    return waited;
}

}  // namespace memlab::interpose
