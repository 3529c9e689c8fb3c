#include "interpose/sharing/exporter.hpp"

#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/memory/context_registry.hpp"
#include "profiler/clock.hpp"
#include "threads/no_cancellation.hpp"
#include "threads/own_thread.hpp"

namespace memlab::interpose {
namespace {

struct Chunk {
    CUdeviceptr begin = 0;
    std::size_t bytes = 0;
};

CUresult find_chunk(CUdeviceptr address, Chunk* chunk) {
    return call_real(&Driver::cuMemGetAddressRange_v2, &chunk->begin, &chunk->bytes, address);
}

// A new descriptor of the memory that is mapped at the address.
CUresult export_chunk(CUdeviceptr address, int* descriptor) {
    CUmemGenericAllocationHandle handle = 0;
    CUresult result =
        call_real(&Driver::cuMemRetainAllocationHandle, &handle, reinterpret_cast<void*>(address));
    if (result == CUDA_SUCCESS) {
        result = call_real(&Driver::cuMemExportToShareableHandle, static_cast<void*>(descriptor),
                           handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL);
        call_real(&Driver::cuMemRelease, handle);
    }
    return result;
}

}  // namespace

Exporter& exporter() {
    static auto& once = *new Exporter;
    return once;
}

bool is_shareable(Memory& memory, const PooledBlock& pooled) {
    return memory.settings().share_ipc &&
           pooled.context->backend().pages().can_share(pooled.block->address);
}

CUresult Exporter::share(Memory& memory, const PooledBlock& pooled, CUipcMemHandle* handle) {
    if (handle == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const threads::NoCancellation no_cancellation;
    const threads::LockGuard lock(mutex_);
    if (!start(memory)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    SharedHandle shared;
    shared.socket = token_;
    shared.process = process_.load(std::memory_order_relaxed);
    shared.address = pooled.block->address;
    shared.block = pooled.block->id;
    shared.bytes = pooled.block->requested;
    *handle = encode(shared);
    return CUDA_SUCCESS;
}

bool Exporter::made(const SharedHandle& handle) const {
    const std::int32_t process = process_.load(std::memory_order_acquire);
    return process != 0 && process == ::getpid() && handle.socket == token_;
}

bool Exporter::start(Memory& memory) {
    if (const std::int32_t process = process_.load(std::memory_order_relaxed); process != 0) {
        return process == ::getpid();
    }
    memory_ = &memory;
    if (!listen_on_new_socket() || !threads::start_own_thread(&Exporter::run, this)) {
        return false;
    }
    process_.store(::getpid(), std::memory_order_release);
    return true;
}

bool Exporter::listen_on_new_socket() {
    if (::getrandom(token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size())) {
        return false;
    }
    const SocketAddress own(token_);
    constexpr int waiting_clients = 64;
    socket_ = trace::OwnDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    return socket_.number() >= 0 &&
           ::bind(socket_.number(), reinterpret_cast<const sockaddr*>(&own.address), own.size) ==
               0 &&
           ::listen(socket_.number(), waiting_clients) == 0;
}

void* Exporter::run(void* self) {
    const InsideMemlab inside;
    static_cast<Exporter*>(self)->serve();
    return nullptr;
}

// Until the program closes the socket, which may then be another file of its own.
void Exporter::serve() {
    for (;;) {
        const int client = ::accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC);
        if (client >= 0) {
            answer(client);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            ::usleep(10'000);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
        if (!socket_.check()) {
            return;
        }
    }
}

void Exporter::answer(int client) {
    MemorySocket socket(client, profiler::monotonic_ns() + sharing_deadline_ns);
    std::int32_t process = 0;
    CUipcMemHandle handle;
    if (!socket.peer_is_own(&process) || !socket.receive_request(&handle)) {
        return;
    }
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    try {
        result = send_block(socket, handle);
    } catch (const std::bad_alloc&) {  // told like any error
    }
    if (result != CUDA_SUCCESS) {
        Parts refusal;
        refusal.result = result;
        socket.send_parts(refusal, nullptr);
    }
}

CUresult Exporter::send_block(MemorySocket& client, const CUipcMemHandle& handle) {
    SharedHandle shared;
    if (!decode(handle, &shared) || !made(shared)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const std::optional<PooledBlock> pooled = find_pooled(*memory_, shared.address);
    if (!pooled || !pooled->block || pooled->block->address != shared.address ||
        pooled->block->id != shared.block || !is_shareable(*memory_, *pooled)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const CurrentContext current(pooled->context->handle());
    const CUdeviceptr end = shared.address + pooled->block->size;
    Parts parts;
    Chunk chunk;
    for (CUdeviceptr next = shared.address; next < end; next = chunk.begin + chunk.bytes) {
        if (const CUresult result = find_chunk(next, &chunk); result != CUDA_SUCCESS) {
            return result;
        }
        parts.offset = next == shared.address ? next - chunk.begin : parts.offset;
        parts.bytes += chunk.bytes;
    }
    for (CUdeviceptr next = shared.address; next < end;) {
        int descriptors[Parts::max_parts];
        CUresult result = CUDA_SUCCESS;
        parts.count = 0;
        while (result == CUDA_SUCCESS && parts.count < Parts::max_parts && next < end) {
            result = find_chunk(next, &chunk);
            if (result == CUDA_SUCCESS) {
                result = export_chunk(next, &descriptors[parts.count]);
            }
            if (result == CUDA_SUCCESS) {
                parts.sizes[parts.count++] = chunk.bytes;
                next = chunk.begin + chunk.bytes;
            }
        }
        const bool sent = result == CUDA_SUCCESS && client.send_parts(parts, descriptors);
        for (std::uint32_t i = 0; i < parts.count; ++i) {
            ::close(descriptors[i]);
        }
        if (result != CUDA_SUCCESS || !sent) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

}  // namespace memlab::interpose
