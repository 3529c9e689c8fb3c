// Work on a GPU whose result is a number, the same in every run: several streams, events, an
// executable graph with a kernel, a copy and a fill, a texture on linear memory, an access policy
// window of L2, memory that comes and goes, copies to and from the host. While it runs its memory
// is moved out of the GPU and back (tests/gpu/step_aside.py).
//
//   yielding_work ROUNDS MIB    says "ready" when the first round is over, and the number at the
//   end;
//                               holds so many MiB beside what it works with
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check_call(cudaError_t result, const char* call, int line) {
    if (result != cudaSuccess) {
        std::fprintf(stderr, "line %d: %s: %s\n", line, call, cudaGetErrorString(result));
        std::exit(3);
    }
}
#define CHECK(call) check_call((call), #call, __LINE__)

constexpr int words = 1 << 20;
constexpr int block = 256;
constexpr int grid = words / block;

__global__ void mix(std::uint32_t* data, std::uint32_t with) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    std::uint32_t value = data[i] + with + static_cast<std::uint32_t>(i);
    value ^= value << 13;
    value ^= value >> 17;
    value ^= value << 5;
    data[i] = value;
}

__global__ void add(std::uint32_t* into, const std::uint32_t* one, const std::uint32_t* other) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    into[i] += one[i] ^ other[(i * 7) % words];
}

__global__ void add_texture(std::uint32_t* into, cudaTextureObject_t texture) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    into[i] += tex1Dfetch<std::uint32_t>(texture, (i * 11) % words);
}

std::uint32_t* make(std::uint32_t seed) {
    std::uint32_t* data = nullptr;
    CHECK(cudaMalloc(&data, words * sizeof *data));
    CHECK(cudaMemset(data, static_cast<int>(seed & 0xff), words * sizeof *data));
    mix<<<grid, block>>>(data, seed);
    return data;
}

std::uint64_t sum_of(const std::uint32_t* data) {
    std::vector<std::uint32_t> host(words);
    CHECK(cudaMemcpy(host.data(), data, words * sizeof *data, cudaMemcpyDeviceToHost));
    std::uint64_t sum = 14695981039346656037ULL;
    for (const std::uint32_t value : host) {
        sum = (sum ^ value) * 1099511628211ULL;
    }
    return sum;
}

cudaTextureObject_t texture_on(std::uint32_t* data) {
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = data;
    resource.res.linear.desc = cudaCreateChannelDesc<std::uint32_t>();
    resource.res.linear.sizeInBytes = words * sizeof *data;
    cudaTextureDesc description{};
    description.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture = 0;
    CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    return texture;
}

cudaGraphExec_t graph_of(cudaStream_t stream, std::uint32_t* a, std::uint32_t* b,
                         std::uint32_t* c) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    mix<<<grid, block, 0, stream>>>(a, 3);
    CHECK(cudaMemcpyAsync(b, a, words * sizeof *a / 2, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemsetAsync(c, 5, words * sizeof *c / 4, stream));
    add<<<grid, block, 0, stream>>>(c, a, b);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return executable;
}

void use_l2_window(cudaStream_t stream, std::uint32_t* data) {
    cudaStreamAttrValue value{};
    value.accessPolicyWindow.base_ptr = data;
    value.accessPolicyWindow.num_bytes = words * sizeof *data / 4;
    value.accessPolicyWindow.hitRatio = 1.0F;
    value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    (void)cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value);
    (void)cudaGetLastError();  // a GPU without it works as well
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 3) {
        return 2;
    }
    const int rounds = std::atoi(arguments[1]);
    const auto ballast_bytes = static_cast<std::size_t>(std::atoi(arguments[2])) << 20;
    std::uint32_t* const a = make(1);
    std::uint32_t* const b = make(2);
    std::uint32_t* const c = make(3);
    std::uint32_t* const d = make(4);
    void* ballast = nullptr;
    CHECK(cudaMalloc(&ballast, ballast_bytes + 1));
    CHECK(cudaMemset(ballast, 42, ballast_bytes + 1));
    cudaStream_t streams[3];
    cudaEvent_t events[3];
    for (int i = 0; i < 3; ++i) {
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
    }
    CHECK(cudaDeviceSynchronize());
    use_l2_window(streams[0], a);
    const cudaTextureObject_t texture = texture_on(d);
    const cudaGraphExec_t graph = graph_of(streams[0], a, b, c);
    std::uint32_t* pinned = nullptr;
    CHECK(cudaMallocHost(&pinned, words * sizeof *pinned));
    for (int round = 0; round < rounds; ++round) {
        const auto seed = static_cast<std::uint32_t>(round);
        CHECK(cudaGraphLaunch(graph, streams[0]));
        CHECK(cudaEventRecord(events[0], streams[0]));
        CHECK(cudaStreamWaitEvent(streams[1], events[0]));
        mix<<<grid, block, 0, streams[1]>>>(d, seed);
        add_texture<<<grid, block, 0, streams[1]>>>(b, texture);
        CHECK(cudaEventRecord(events[1], streams[1]));
        CHECK(cudaStreamWaitEvent(streams[2], events[1]));
        std::uint32_t* passing = nullptr;
        CHECK(cudaMalloc(&passing, words * sizeof *passing));
        CHECK(cudaMemcpyAsync(passing, b, words * sizeof *b, cudaMemcpyDeviceToDevice, streams[2]));
        add<<<grid, block, 0, streams[2]>>>(passing, c, d);
        CHECK(cudaMemcpyAsync(pinned, passing, words * sizeof *pinned, cudaMemcpyDeviceToHost,
                              streams[2]));
        CHECK(
            cudaMemcpyAsync(c, pinned, words * sizeof *pinned, cudaMemcpyHostToDevice, streams[2]));
        CHECK(cudaEventRecord(events[2], streams[2]));
        CHECK(cudaStreamWaitEvent(streams[0], events[2]));
        if (round % 3 == 0) {
            CHECK(cudaStreamSynchronize(streams[2]));
        }
        CHECK(cudaFree(passing));
        if (round == 0) {
            CHECK(cudaDeviceSynchronize());
            std::printf("ready\n");
            std::fflush(stdout);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned char> held(ballast_bytes + 1);
    CHECK(cudaMemcpy(held.data(), ballast, held.size(), cudaMemcpyDeviceToHost));
    std::uint64_t wrong = 0;
    for (const unsigned char byte : held) {
        wrong += byte == 42 ? 0 : 1;
    }
    std::printf(
        "%016llx %016llx %016llx %016llx %llu\n", static_cast<unsigned long long>(sum_of(a)),
        static_cast<unsigned long long>(sum_of(b)), static_cast<unsigned long long>(sum_of(c)),
        static_cast<unsigned long long>(sum_of(d)), static_cast<unsigned long long>(wrong));
    return 0;
}
