// A program that has seen what its kernels print once it frees memory, since cuMemFree waits.
//
//   device_printf at_once        cuMemFree at once after the launch
//   device_printf busy           ... while a kernel before it in its stream still runs
//   device_printf done           ... long after the kernel's end
//   device_printf pair           ... where another pair was allocated and freed before the launch
//   device_printf again          ... after a second launch
//   device_printf other_context  ... in a context that is not the thread's current one
//   device_printf in_capture     ... while another stream captures
//   device_printf after_capture  ... after an allocation that found a capture's frees complete
//   device_printf calls          the driver's waits that frees take, on the simulated driver only
//
// Prints "seen" or "not seen", and "done".
#include <fcntl.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "spinning.hpp"

using namespace program;

namespace {

constexpr std::size_t bytes = std::size_t{3} << 20;
constexpr std::string_view text = "a word from the device\n";

constexpr char printing_kernel[] = R"(
.version 7.0
.target sm_52
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[24] = {97, 32, 119, 111, 114, 100, 32, 102, 114, 111, 109, 32, 116, 104,
    101, 32, 100, 101, 118, 105, 99, 101, 10, 0};
.visible .entry say() {
    .reg .b64 %t;
    .reg .b64 %a;
    .reg .b32 %r;
    mov.u64 %t, text;
    cvta.global.u64 %t, %t;
    mov.u64 %a, 0;
    {
        .param .b64 format;
        .param .b64 arguments;
        .param .b32 result;
        st.param.b64 [format+0], %t;
        st.param.b64 [arguments+0], %a;
        call.uni (result), vprintf, (format, arguments);
        ld.param.b32 %r, [result+0];
    }
    ret;
}
)";

/// Standard output, which the driver prints to, is a pipe meanwhile.
class Listening {
  public:
    Listening() : before_(::dup(STDOUT_FILENO)) {
        if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0 ||
            ::dup2(ends_[1], STDOUT_FILENO) != STDOUT_FILENO) {
            ::_exit(3);
        }
    }
    ~Listening() {
        ::dup2(before_, STDOUT_FILENO);
        ::close(before_);
        ::close(ends_[0]);
        ::close(ends_[1]);
    }
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;

    /// What came since the last call.
    std::string heard() {
        (void)std::fflush(stdout);
        char buffer[256];
        const ssize_t count = ::read(ends_[0], buffer, sizeof(buffer));
        return {buffer, static_cast<std::size_t>(count > 0 ? count : 0)};
    }

  private:
    int before_;
    int ends_[2]{};
};

class Speaker {
  public:
    Speaker() {
        CHECK(cuModuleLoadData(&module_, printing_kernel));
        CHECK(cuModuleGetFunction(&say_, module_, "say"));
        CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    }
    CUstream stream() const { return stream_; }

    void say() {
        static auto* print = simulated<int(void*, const char*)>("simcuda_printing_kernel");
        if (print != nullptr) {
            print(stream_, text.data());
        } else {
            CHECK(cuLaunchKernel(say_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr));
        }
    }

  private:
    CUmodule module_ = nullptr;
    CUfunction say_ = nullptr;
    CUstream stream_ = nullptr;
};

void let_it_end() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

/// Frees the block while a stream captures, and then does the rest.
template <class Rest>
void free_in_capture(CUdeviceptr block, const Rest& rest) {
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    release(block);
    rest();
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
}

std::string heard_after_free(std::string_view way, CUcontext context) {
    Speaker speaker;
    Spin spin(speaker.stream());
    const CUdeviceptr block = allocate(bytes);
    const CUdeviceptr other = allocate(bytes);
    Listening listening;
    if (way == "pair" || way == "again") {
        release(allocate(bytes));
    }
    if (way == "again") {
        speaker.say();
        let_it_end();
        release(other);
        if (listening.heard() != text) {
            return "not even the first time";
        }
    }
    if (way == "busy") {
        spin.start();
        speaker.say();
        std::thread opener([&] {
            CHECK(cuCtxSetCurrent(context));
            let_it_end();
            spin.go();
        });
        release(block);
        opener.join();
        return listening.heard();
    }
    const auto say = [&] {
        speaker.say();
        if (way != "at_once") {
            let_it_end();
        }
    };
    if (way == "after_capture") {
        free_in_capture(other, say);
        (void)allocate(2 * bytes);
        release(block);
        return listening.heard();
    }
    say();
    if (way == "other_context") {
        CUcontext second = nullptr;
        CHECK(create_context(&second));
        release(block);
        const std::string heard = listening.heard();
        CHECK(cuCtxDestroy(second));
        return heard;
    }
    if (way == "in_capture") {
        free_in_capture(block, [] {});
        return listening.heard();
    }
    release(block);
    return listening.heard();
}

std::uint64_t waits() {
    static auto* calls = control<std::uint64_t(const char*)>("simcuda_calls");
    return calls("cuEventSynchronize") + calls("cuStreamSynchronize") + calls("cuCtxSynchronize") +
           calls("cuMemFree");
}

void count_calls() {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    auto* launch =
        control<int(void*, std::uint64_t, const simcuda_access*, std::size_t)>("simcuda_kernel");
    release(allocate(bytes));
    std::uint64_t before = waits();
    for (int i = 0; i < 1000; ++i) {
        release(allocate(bytes));
    }
    SAY("1000 pairs: %d\n", static_cast<int>(waits() - before));
    before = waits();
    for (int i = 0; i < 10; ++i) {
        launch(stream, 0, nullptr, 0);
        for (int j = 0; j < 100; ++j) {
            release(allocate(bytes));
        }
    }
    SAY("10 launches, 100 pairs after each: %d\n", static_cast<int>(waits() - before));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        return 2;
    }
    must_end_within(30);
    const CUcontext context = use_device();
    if (std::strcmp(argv[1], "calls") == 0) {
        count_calls();
    } else {
        SAY("%s\n", heard_after_free(argv[1], context) == text ? "seen" : "not seen");
    }
    SAY("done\n");
    return 0;
}
