// A program whose memory all goes through a class of its own: three buffers of 4, 8 and 16 MiB,
// made by two functions; all are freed.
#include "program.hpp"

namespace {

class DeviceBuffer {
  public:
    [[gnu::noinline]] explicit DeviceBuffer(std::size_t bytes) {
        CHECK(cuMemAlloc(&address_, bytes));
    }
    ~DeviceBuffer() { CHECK(cuMemFree(address_)); }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;

    CUdeviceptr address() const { return address_; }

  private:
    CUdeviceptr address_ = 0;
};

constexpr std::size_t mib = std::size_t{1} << 20;

[[gnu::noinline]] void train_step(const DeviceBuffer& weights) {
    const DeviceBuffer activations(16 * mib);
    const DeviceBuffer gradients(8 * mib);
    SAY("%d\n", weights.address() != activations.address() && gradients.address() != 0);
}

}  // namespace

int main() {
    program::use_device();
    const DeviceBuffer weights(4 * mib);
    train_step(weights);
}
