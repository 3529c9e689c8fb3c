// Lesson: gradient checkpointing trades compute for memory. The backward pass of a deep network
// needs the activations of the forward pass; instead of keeping all of them one keeps every fourth
// and computes the others again when they are needed: the peak falls, the allocations rise.
//
// The network is 16 layers of y[i] = w * y[i-1] + sin(y[i-1]) on 1,000,000 float32; the program
// computes the gradient of the sum of its output with respect to its input, both ways alike.
//
// Run:       export LD_PRELOAD=libmemlab.so
//            MEMLAB_OUTPUT=plain.json ./sample_checkpointing plain
//            MEMLAB_OUTPUT=checkpointed.json ./sample_checkpointing checkpointed
// Look for:  the allocated peak and the number of allocations of each report. The program counts
//            both by itself and prints them, so you can hold them against the report.
#include <cmath>
#include <cstring>
#include <vector>

#include "sample.cuh"

namespace {

constexpr int layers = 16;
constexpr int keep_every = 4;
constexpr int elements = 1000000;
constexpr std::size_t tensor_bytes = elements * sizeof(float);
constexpr float weight = 0.5F;

__global__ void forward(const float* in, float* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = weight * in[i] + sinf(in[i]);
    }
}

// gradient with respect to the layer's input, from the input and the gradient of its output
__global__ void backward(const float* in, const float* gradient, float* result, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        result[i] = gradient[i] * (weight + cosf(in[i]));
    }
}

/// The program's own books, to hold against memlab's report.
struct Books {
    int allocations = 0;
    int live = 0;
    int peak = 0;
};
Books books;

float* new_tensor() {
    float* tensor = nullptr;
    CHECK(cudaMalloc(&tensor, tensor_bytes));
    CHECK(cudaMemset(tensor, sample::untouched_byte, tensor_bytes));
    ++books.allocations;
    books.peak = books.peak > ++books.live ? books.peak : books.live;
    return tensor;
}

void drop(float*& tensor) {
    CHECK(cudaFree(tensor));
    tensor = nullptr;
    --books.live;
}

float* forward_layer(const float* in) {
    float* out = new_tensor();
    forward<<<(elements + 255) / 256, 256>>>(in, out, elements);
    CHECK(cudaGetLastError());
    return out;
}

float* backward_layer(const float* in, float* gradient) {
    float* result = new_tensor();
    backward<<<(elements + 255) / 256, 256>>>(in, gradient, result, elements);
    CHECK(cudaGetLastError());
    drop(gradient);
    return result;
}

/// activations[i] is the input of layer i; those not kept are null and computed again from the
/// nearest kept one before them.
void recompute(std::vector<float*>& activations, int layer) {
    int kept = layer;
    while (activations[kept] == nullptr) {
        --kept;
    }
    for (int i = kept; i < layer; ++i) {
        activations[i + 1] = forward_layer(activations[i]);
    }
}

/// The gradient at one element, on the host in double precision.
double expected_gradient(double x) {
    double gradient = 1;
    for (int layer = 0; layer < layers; ++layer) {
        gradient *= weight + std::cos(x);
        x = weight * x + std::sin(x);
    }
    return gradient;
}

}  // namespace

int main(int argc, char** argv) {
    const bool checkpointed = argc == 2 && std::strcmp(argv[1], "checkpointed") == 0;
    if (argc != 2 || (!checkpointed && std::strcmp(argv[1], "plain") != 0)) {
        std::fprintf(stderr, "usage: %s plain|checkpointed\n", argv[0]);
        return 2;
    }

    std::vector<float> host(elements);
    for (int i = 0; i < elements; ++i) {
        host[i] = 0.001F * static_cast<float>(i % 1000);
    }
    std::vector<float*> activations(layers + 1, nullptr);
    activations[0] = new_tensor();
    CHECK(cudaMemcpy(activations[0], host.data(), tensor_bytes, cudaMemcpyHostToDevice));

    for (int layer = 0; layer < layers; ++layer) {
        activations[layer + 1] = forward_layer(activations[layer]);
        if (checkpointed && layer % keep_every != 0) {
            drop(activations[layer]);
        }
    }
    drop(activations[layers]);  // the sum's gradient is 1 everywhere: the output itself is not used

    float* gradient = new_tensor();
    const std::vector<float> ones(elements, 1.0F);
    CHECK(cudaMemcpy(gradient, ones.data(), tensor_bytes, cudaMemcpyHostToDevice));
    for (int layer = layers - 1; layer >= 0; --layer) {
        recompute(activations, layer);
        gradient = backward_layer(activations[layer], gradient);
        drop(activations[layer]);
    }

    std::vector<float> result(elements);
    CHECK(cudaMemcpy(result.data(), gradient, tensor_bytes, cudaMemcpyDeviceToHost));
    if (!sample::untouched(result.data(), result.size())) {
        for (int i = 0; i < elements; ++i) {
            const double expected = expected_gradient(host[i]);
            sample::require(std::abs(result[i] - expected) <= 1e-3 * std::abs(expected) + 1e-3,
                            "a gradient differs from the one computed on the host");
        }
    }
    drop(gradient);

    std::printf("%s: %d allocations, at most %d tensors of %zu bytes at a time\n", argv[1],
                books.allocations, books.peak, tensor_bytes);
    return 0;
}
