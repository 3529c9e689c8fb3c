// Two GPUs that use one another's memory. Blocks of one are written by the other's streams and
// freed with that work running, with either device current, and what gets their memory next must
// not be touched by it; memory is copied between the two and freed behind the copy; then one of
// them is reset, which must not touch the other's memory. Prints every answer that is the same on
// all devices.
//
//   two_gpus             the program waits for the other device's work before it frees, as plain
//                        CUDA needs it: its cudaFree waits for the device that the memory is on,
//                        not for a peer that uses it; not even, now and then, when a stream of
//                        the owner waits for the peer's event (an illegal access, seen on H200s)
//   two_gpus unordered   nothing does, and the program ends after that part: with plain CUDA blocks
//                        are overwritten, with memlab, whose fences cover the peers, none
//
// On the simulated driver, where the work of the streams takes time, two owners' unordered accesses
// end the process with code 86; on GPUs the contents tell.
//
// Recorded: device: 4 × 1 for waiting, 2 × 40 rounds of 2, 2 × 20 copies of 2, 3 kept (1 of them
// lost by the reset, as are 2 for waiting), 1 after it; pinned: 1.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t block_bytes = 3 * mib;
constexpr std::size_t waiting_bytes = 64 * mib;

void must(cudaError_t error, const char* call, int line) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "line %d: %s: %s\n", line, call, cudaGetErrorString(error));
        std::exit(3);
    }
}
#define MUST(call) must((call), #call, __LINE__)

void answer(const char* what, cudaError_t error) {
    std::printf("%s: %d\n", what, static_cast<int>(error));
    (void)cudaGetLastError();
}

// A control function of the simulated driver; null on a real one.
void* simulated(const char* name) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return driver == nullptr ? nullptr : dlsym(driver, name);
}

// Whose a range is from now on, for the simulated driver's race detector.
void belongs_to(void* address, std::size_t bytes, std::uint64_t owner) {
    using Owner = void(std::uint64_t, std::uint64_t, std::uint64_t);
    if (void* function = simulated("simcuda_owner")) {
        reinterpret_cast<Owner*>(function)(reinterpret_cast<std::uint64_t>(address), bytes, owner);
    }
}

// On the simulated driver each piece of the stream's work takes a millisecond.
bool make_slow(cudaStream_t stream) {
    using WorkTime = int(void*, std::uint64_t);
    void* function = simulated("simcuda_set_work_time");
    return function != nullptr && reinterpret_cast<WorkTime*>(function)(stream, 1'000'000) == 0;
}

struct Device {
    int number;
    cudaStream_t stream;
    cudaEvent_t done;
    bool slow;
    void* waiting[2];  // copied back and forth, so that what follows on the stream comes late
};

std::uint64_t owners = 0;
bool ordered = true;
void* pinned = nullptr;

Device start(int number) {
    Device device{number, nullptr, nullptr, false, {}};
    MUST(cudaSetDevice(number));
    MUST(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&device.done, cudaEventDisableTiming));
    for (void*& waiting : device.waiting) {
        MUST(cudaMalloc(&waiting, waiting_bytes));
    }
    device.slow = make_slow(device.stream);
    return device;
}

void delay(const Device& device) {
    for (int i = 0; i < 4 && !device.slow; ++i) {
        MUST(cudaMemcpyAsync(device.waiting[i % 2], device.waiting[1 - i % 2], waiting_bytes,
                             cudaMemcpyDeviceToDevice, device.stream));
    }
}

// Every byte the pattern? Read through the stream that wrote it.
bool holds(const Device& device, const void* block, int pattern) {
    MUST(cudaMemcpyAsync(pinned, block, block_bytes, cudaMemcpyDeviceToHost, device.stream));
    MUST(cudaStreamSynchronize(device.stream));
    const auto* bytes = static_cast<const unsigned char*>(pinned);
    for (std::size_t i = 0; i < block_bytes; ++i) {
        if (bytes[i] != pattern) {
            return false;
        }
    }
    return true;
}

// What plain CUDA needs before memory of `home` is freed that `other` works on.
void order(const Device& home, const Device& other) {
    if (ordered) {
        MUST(cudaEventRecord(other.done, other.stream));
        MUST(cudaStreamWaitEvent(home.stream, other.done, 0));
        MUST(cudaStreamSynchronize(home.stream));
    }
}

// A block of `home` is written by `other`'s stream, late, and freed with `current` current; its
// memory's next owner is written by home's stream.
int reuse_round(const Device& home, const Device& other, const Device& current) {
    void* block = nullptr;
    MUST(cudaSetDevice(home.number));
    MUST(cudaMalloc(&block, block_bytes));
    belongs_to(block, block_bytes, ++owners);
    MUST(cudaSetDevice(other.number));
    delay(other);
    MUST(cudaMemsetAsync(block, 0xee, block_bytes, other.stream));
    order(home, other);
    MUST(cudaSetDevice(current.number));
    MUST(cudaFree(block));

    void* next = nullptr;
    MUST(cudaSetDevice(home.number));
    MUST(cudaMalloc(&next, block_bytes));
    belongs_to(next, block_bytes, ++owners);
    MUST(cudaMemsetAsync(next, 0x11, block_bytes, home.stream));
    MUST(cudaStreamSynchronize(other.stream));
    const bool right = holds(home, next, 0x11);
    MUST(cudaSetDevice(current.number));
    MUST(cudaFree(next));
    return right ? 0 : 1;
}

// From one device to the other, both ends freed at once.
int copy_round(const Device& from, const Device& to) {
    void* source = nullptr;
    void* target = nullptr;
    MUST(cudaSetDevice(from.number));
    MUST(cudaMalloc(&source, block_bytes));
    belongs_to(source, block_bytes, ++owners);
    MUST(cudaMemsetAsync(source, 0x22, block_bytes, from.stream));
    MUST(cudaStreamSynchronize(from.stream));
    MUST(cudaSetDevice(to.number));
    MUST(cudaMalloc(&target, block_bytes));
    belongs_to(target, block_bytes, ++owners);
    MUST(cudaMemcpyPeerAsync(target, to.number, source, from.number, block_bytes, to.stream));
    order(from, to);
    MUST(cudaFree(source));
    const bool right = holds(to, target, 0x22);
    MUST(cudaFree(target));
    return right ? 0 : 1;
}

void* keep(const Device& device, int pattern) {
    void* block = nullptr;
    MUST(cudaSetDevice(device.number));
    MUST(cudaMalloc(&block, block_bytes));
    belongs_to(block, block_bytes, ++owners);
    MUST(cudaMemsetAsync(block, pattern, block_bytes, device.stream));
    MUST(cudaStreamSynchronize(device.stream));
    return block;
}

void device_of(const void* block) {
    cudaPointerAttributes seen{};
    answer("cudaPointerGetAttributes", cudaPointerGetAttributes(&seen, block));
    std::printf("type %d, device %d\n", static_cast<int>(seen.type), seen.device);
}

}  // namespace

int main(int argc, char** argv) {
    ordered = argc != 2 || std::strcmp(argv[1], "unordered") != 0;
    int count = 0;
    MUST(cudaGetDeviceCount(&count));
    if (count < 2) {
        std::printf("this program needs two GPUs\n");
        return 2;
    }
    MUST(cudaMallocHost(&pinned, block_bytes));
    const Device zero = start(0);
    const Device one = start(1);
    for (const Device* device : {&zero, &one}) {
        const int peer = 1 - device->number;
        int can = 0;
        MUST(cudaSetDevice(device->number));
        answer("cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(&can, device->number, peer));
        std::printf("it can: %d\n", can);
        answer("cudaDeviceEnablePeerAccess", cudaDeviceEnablePeerAccess(peer, 0));
        answer("once more", cudaDeviceEnablePeerAccess(peer, 0));
    }
    int wrong = 0;
    for (int round = 0; round < 40; ++round) {
        wrong += reuse_round(zero, one, round % 2 == 0 ? zero : one);
        wrong += reuse_round(one, zero, round % 4 < 2 ? zero : one);
    }
    std::printf("reused memory of a peer: %d of 80 wrong\n", wrong);
    if (!ordered) {
        return 0;
    }
    wrong = 0;
    for (int round = 0; round < 20; ++round) {
        wrong += copy_round(zero, one) + copy_round(one, zero);
    }
    std::printf("copies between the devices: %d of 40 wrong\n", wrong);

    void* first = keep(zero, 0x33);
    void* second = keep(one, 0x44);
    void* third = keep(zero, 0x55);
    MUST(cudaSetDevice(1));
    device_of(first);
    device_of(second);
    answer("cudaDeviceDisablePeerAccess", cudaDeviceDisablePeerAccess(0));
    answer("once more", cudaDeviceDisablePeerAccess(0));
    answer("cudaFree of the other device's memory", cudaFree(third));
    answer("cudaFree a second time", cudaFree(third));

    answer("cudaDeviceReset of device 1", cudaDeviceReset());
    answer("cudaFree of memory that the reset took", cudaFree(second));
    MUST(cudaSetDevice(0));
    std::printf("device 0 has what it had: %d\n", holds(zero, first, 0x33) ? 1 : 0);
    answer("cudaFree", cudaFree(first));
    MUST(cudaSetDevice(1));
    void* again = nullptr;
    answer("cudaMalloc after the reset", cudaMalloc(&again, block_bytes));
    answer("cudaMemset", cudaMemset(again, 1, block_bytes));
    answer("cudaFree", cudaFree(again));
    MUST(cudaSetDevice(0));
    answer("cudaFree", cudaFree(zero.waiting[0]));
    answer("cudaFree", cudaFree(zero.waiting[1]));
    answer("cudaFreeHost", cudaFreeHost(pinned));
    return 0;
}
