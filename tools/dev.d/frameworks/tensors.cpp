// A library for trained_model.py, against PyTorch's headers: the CPU's allocator also takes a block
// of the same size from the stand-in for libc10_cuda.so, so that what PyTorch's own operators
// allocate is reported as that of a GPU is; and backward runs on a thread without Python code, as
// that of a GPU does.
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <cstdint>
#include <thread>

extern "C" std::uint64_t torch_allocate(std::int8_t device, std::uint64_t bytes, bool expandable);
extern "C" void torch_free(std::int8_t device, std::uint64_t address);
extern "C" int cuCtxSetCurrent(void* context);

namespace {

struct Block {
    c10::DataPtr memory;
    std::uint64_t reported;
};

void delete_block(void* context) {
    auto* const block = static_cast<Block*>(context);
    torch_free(0, block->reported);
    delete block;
}

class ReportingAllocator final : public c10::Allocator {
  public:
    explicit ReportingAllocator(c10::Allocator* real) : real_(real) {}

    c10::DataPtr allocate(std::size_t bytes) override {
        if (bytes == 0) {
            return real_->allocate(bytes);
        }
        auto* const block = new Block{real_->allocate(bytes), torch_allocate(0, bytes, false)};
        return {block->memory.get(), block, delete_block, c10::Device(c10::DeviceType::CPU)};
    }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }

  private:
    c10::Allocator* const real_;
};

void* cuda_context = nullptr;

void begin(std::int64_t context) {
    cuda_context = reinterpret_cast<void*>(context);
    static auto* const allocator = new ReportingAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(allocator, 100);
}

/// Called without the interpreter's lock.
void backward(const at::Tensor& loss) {
    std::thread([&loss] {
        cuCtxSetCurrent(cuda_context);
        loss.backward();
    }).join();
}

}  // namespace

TORCH_LIBRARY(memlab, library) {
    library.def("begin(int context) -> ()", begin);
    library.def("backward(Tensor loss) -> ()", backward);
}
