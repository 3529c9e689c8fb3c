// What NVML says of every GPU of the machine and of the processes that hold their memory. The tools
// are static programs and cannot load NVML: libmemlab.so, run as a program, asks it in a child
// process (interpose/process/nvml_listing.hpp), which stays for as long as this object does, since
// to start NVML takes longer than to ask it. A child that hangs in a driver is ended and not
// started again for a minute; nothing here waits for it any longer than told.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::tools {

/// A process with memory on a GPU, as NVML lists it. Its id is of the pid namespace that NVML sees.
struct GpuProcess {
    pid_t pid = 0;
    std::optional<std::uint64_t> bytes;  ///< none: the driver does not tell
    bool compute = false;
    bool graphics = false;
};

struct Gpu {
    unsigned index = 0;  ///< NVML's: by PCI address, whatever CUDA_VISIBLE_DEVICES says
    unsigned minor = 0;  ///< /dev/nvidiaN
    std::string uuid;
    std::string pci;   ///< empty: unknown
    std::string name;  ///< "NVIDIA H200"
    std::uint64_t total = 0;
    std::uint64_t used = 0;
    std::uint64_t free = 0;
    std::vector<GpuProcess> processes;  ///< one for each process id
    bool processes_known = true;        ///< false: this driver does not list them
};

struct GpuListing {
    std::string driver;   ///< "580.65.06"
    std::string problem;  ///< why there is none; empty: it is complete
    std::vector<Gpu> gpus;
};

/// The lines of a listing, up to "end". What is not understood is passed over.
GpuListing parse_gpu_listing(std::string_view text);

/// Thread-safety: none.
class NvmlReader {
  public:
    /// `library`: the libmemlab.so to run; empty: that of find_library().
    explicit NvmlReader(std::string library = {}) : library_(std::move(library)) {}
    ~NvmlReader() { end_child(); }
    NvmlReader(const NvmlReader&) = delete;
    NvmlReader& operator=(const NvmlReader&) = delete;

    /// Asks, and waits at most `patience` for the answer. Throws std::bad_alloc only.
    GpuListing read(std::chrono::milliseconds patience = std::chrono::seconds(5));

    /// The child's, or 0: it is not a user of the GPU.
    pid_t child() const { return child_; }

  private:
    using Clock = std::chrono::steady_clock;

    bool start_child();
    void end_child();
    GpuListing failed(const std::string& why);

    std::string library_;
    pid_t child_ = 0;
    int socket_ = -1;
    std::string problem_;
    Clock::time_point not_before_;
};

}  // namespace memlab::tools
