// Lesson: a leak is what is still there after every step, and grows. Marks and scopes tell memlab
// where a step ends; it then finds the call site that grows, below everything that comes and goes.
//
// A training loop: each step allocates activations of a random length in "forward", frees them in
// "backward", and remembers its loss. "To plot it later" the loss stays on the device: 512 bytes a
// step that nobody frees, below activations that differ by hundreds of mebibytes. A cache of
// attention masks, one for each length, grows in the beginning and then no more: no leak.
//
// Run:       LD_PRELOAD=libmemlab.so ./sample_leak
//            memlab-report memlab.sample_leak.*.json
// Look for:  "Steps": 400 steps, growing, 512 B/step at the line of remember_loss alone.
//            "Scopes": what forward adds at its peak and leaves for backward; step leaves only the
//            losses and the masks.
#include <memlab/memlab.h>

#include <cstdint>
#include <map>
#include <vector>

#include "sample.cuh"

namespace {

constexpr int steps = 400;
constexpr int layers = 8;
constexpr std::size_t bytes_per_token = 64 << 10;

__global__ void compute(float* output, int length) {
    output[0] = static_cast<float>(length);
}

float* allocate(std::size_t bytes) {
    float* memory = nullptr;
    CHECK(cudaMalloc(&memory, bytes));
    return memory;
}

/// Between 64 and 512 in steps of 64; the same in every run.
int length_of(int step) {
    const auto mixed = static_cast<std::uint32_t>(step) * 2654435761U;
    return 64 * (1 + static_cast<int>(mixed >> 29));
}

class Trainer {
  public:
    void step(int number) {
        const memlab::Scope scope("step");
        const int length = length_of(number);
        float* const mask = mask_of(length);
        forward(length, mask);
        remember_loss(length);
        backward();
    }

    ~Trainer() {
        for (const auto& [length, mask] : masks_) {
            CHECK(cudaFree(mask));
        }
    }

  private:
    void forward(int length, float* mask) {
        const memlab::Scope scope("forward");
        for (int layer = 0; layer < layers; ++layer) {
            activations_.push_back(allocate(static_cast<std::size_t>(length) * bytes_per_token));
            compute<<<1, 1>>>(activations_.back(), length);
            compute<<<1, 1>>>(mask, length);
        }
        CHECK(cudaGetLastError());
    }

    void backward() {
        const memlab::Scope scope("backward");
        for (; !activations_.empty(); activations_.pop_back()) {
            CHECK(cudaFree(activations_.back()));
        }
    }

    void remember_loss(int length) {
        float* loss = nullptr;
        CHECK(cudaMalloc(&loss, 512));  // the leak: nobody frees a loss
        CHECK(cudaMemset(loss, sample::untouched_byte, sizeof(float)));
        compute<<<1, 1>>>(loss, length);
        losses_.push_back(loss);
    }

    float* mask_of(int length) {
        float*& mask = masks_[length];
        if (mask == nullptr) {
            mask = allocate(static_cast<std::size_t>(length) * length * sizeof(float));
            memlab_label(mask, "attention masks");
        }
        return mask;
    }

    std::vector<float*> activations_;
    std::vector<float*> losses_;
    std::map<int, float*> masks_;
};

}  // namespace

int main() {
    Trainer trainer;
    for (int step = 0; step < steps; ++step) {
        trainer.step(step);
    }
    std::printf("%d steps\n", steps);
    return 0;
}
