// Memory of objects whose life begins before main or ends after it: a static constructor, a static
// destructor, an atexit handler, thread-local destructors of a thread and of main's thread.
//
// Recorded: 6 device allocations (1000, 2000, ... 6000 bytes), 5 frees; live: 3000 bytes, what the
// static destructor allocates and keeps.
#include <thread>

#include "program.hpp"

using namespace program;

namespace {

class Static {
  public:
    Static() {
        use_device();
        block_ = allocate(1000);
        SAY("static constructor\n");
    }
    Static(const Static&) = delete;
    Static& operator=(const Static&) = delete;
    ~Static() {
        release(block_);
        release(allocate(2000));
        allocate(3000);
        SAY("static destructor\n");
    }

  private:
    CUdeviceptr block_ = 0;
};

class PerThread {
  public:
    explicit PerThread(std::size_t bytes) : bytes_(bytes) {}
    PerThread(const PerThread&) = delete;
    PerThread& operator=(const PerThread&) = delete;
    ~PerThread() {
        release(allocate(bytes_));
        SAY("thread-local destructor of %zu bytes\n", bytes_);
    }
    void touch() const {}

  private:
    std::size_t bytes_;
};

const Static object;
CUcontext shared_context;

}  // namespace

int main() {
    CHECK(cuCtxGetCurrent(&shared_context));
    std::thread([] {
        CHECK(cuCtxSetCurrent(shared_context));
        thread_local const PerThread of_thread(4000);
        of_thread.touch();
    }).join();
    thread_local const PerThread of_main(5000);
    of_main.touch();
    std::atexit([] {
        release(allocate(6000));
        SAY("atexit handler\n");
    });
    SAY("main returns\n");
    return 0;
}
