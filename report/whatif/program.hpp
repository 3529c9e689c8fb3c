// The recorded program as its calls: what it asked for and gave back, when, and when the memory was
// safe to use again; without anything that an allocator decided. It is what a what-if runs.
//
// One Program a device. Device memory that the program asked for by cudaMalloc or cudaMallocAsync
// is in it, whoever served it (memlab's pool, the driver with MEMLAB_POOL=off). Arrays, managed
// memory, VMM and graphs are not: no allocator of this kind serves them; they count as outside.
//
// Any log that decodes gives a program that holds together, truncated, hostile or begun late: an
// allocation is freed at most once, and completed at most once and after its free. What did not fit
// (a free of nothing, a second allocation at a live address) is counted in `inconsistencies`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trace/address_map.hpp"
#include "trace/log_reader.hpp"
#include "trace/record_sink.hpp"

namespace memlab::whatif {

struct Allocation {
    std::uint64_t requested = 0;
    std::uint64_t event = 0;  ///< the number of its event in the log, from 1
    std::uint64_t time_ns = 0;
    std::uint64_t stream = 0;  ///< where the call names one
    std::uint32_t context = 0;
    std::uint32_t thread = 0;
    std::uint32_t stack = 0;  ///< StackDef::id, which is also the index in the JSON's stacks
    trace::MemoryKind kind = trace::MemoryKind::device;
    trace::Origin origin = trace::Origin::driver;
};

enum class StepKind : std::uint8_t {
    allocate,      ///< `subject`: index into Program::allocations
    attempt,       ///< the same, of an allocation that failed when it was recorded
    free,          ///< the application gives it back
    complete,      ///< no work on the device uses it any more
    empty_cache,   ///< the program asked its allocator to give back what is unused
    mark,          ///< the program set a mark or ended a scope: a step of its own ended
    context_lost,  ///< `subject`: context id; all its allocations have been freed before
};

struct Step {
    StepKind kind = StepKind::allocate;
    std::uint32_t subject = 0;
};

/// What the recorded run itself came to, for comparison.
struct Recorded {
    std::uint64_t reserved_peak = 0;   ///< of memlab's pool; 0 where it served nothing
    std::uint64_t segment_allocs = 0;  ///< segments and mappings that the pool got
    std::uint64_t segment_frees = 0;
    std::uint64_t pooled = 0;  ///< allocations that the pool served
    std::uint64_t failed = 0;  ///< allocations that failed
};

struct Program {
    trace::DeviceInfo device;
    std::vector<Allocation> allocations;
    std::vector<Step> steps;
    Recorded recorded;
    /// The most that was in use on the device beside this program's allocations and memlab's pool
    /// (contexts, libraries' code, other kinds of memory, other processes), as far as was sampled.
    std::uint64_t outside_bytes = 0;
    bool outside_known = false;
    bool uses_pytorch = false;   ///< PyTorch's allocator library was seen in a call stack
    bool streams_known = false;  ///< every allocation names its stream (all are cudaMallocAsync)
    std::uint64_t inconsistencies = 0;
};

struct Recording {
    trace::ProcessInfo process;
    std::vector<trace::OptionValue> options;
    std::vector<Program> programs;  ///< by device index; devices without allocations are left out
    trace::LogStatus status = trace::LogStatus::not_a_log;
    std::string warning;  ///< the log is damaged: what and where; "" for a log that was cut off
    std::uint64_t events = 0;
};

/// Takes a recording in; feed it as the sink of a log reader, then call finish(). Call sites are
/// looked up in the report of the same log, when one is shown.
class ProgramBuilder final : public trace::RecordSink {
  public:
    using trace::RecordSink::on;
    void on(const trace::ProcessInfo& record) override;
    void on(const trace::OptionValue& record) override;
    void on(const trace::DeviceInfo& record) override;
    void on(const trace::ContextInfo& record) override;
    void on(const trace::ContextLost& record) override;
    void on(const trace::ModuleDef& record) override;
    void on(const trace::Event& record) override;
    void on(const trace::OomEvent& record) override;
    void on(const trace::DeviceSample& record) override;

    /// The recording; the builder is empty afterwards. `result` is what the reader returned.
    Recording finish(const trace::LogReadResult& result);

  private:
    struct Building {
        Program program;
        trace::AddressMap<std::uint32_t> live;     ///< address to allocation
        trace::AddressMap<std::uint32_t> pending;  ///< freed, not complete
        std::vector<std::uint64_t> served;         ///< per allocation: bytes that served it
        std::uint64_t reserved = 0;                ///< of memlab's pools
        std::map<std::uint32_t, std::uint64_t> reserved_in;  ///< the same, by context
        std::uint64_t driver_served = 0;  ///< of allocations that the driver served
        bool any_streamless = false;
    };

    Building& building(std::uint32_t device) { return devices_[device]; }
    void allocate(Building& to, const trace::Event& record);
    void free(Building& to, const trace::Event& record);
    void complete(Building& to, std::uint64_t address);
    void reserve(Building& to, const trace::Event& record);
    void release(Building& to, const trace::Event& record);
    void note(StepKind kind, Building& to, std::uint32_t subject);

    Recording recording_;
    std::map<std::uint32_t, Building> devices_;
    std::map<std::uint32_t, std::uint32_t> device_of_context_;
    std::uint64_t events_ = 0;
    bool uses_pytorch_ = false;
};

/// What the reader says of a log, without the file's name.
std::string message_of(const trace::LogReadResult& read, const std::string& path);

/// Why a file that is no event log cannot be used: "what; what to do".
std::string not_a_log_error(const trace::LogReadResult& read, const std::string& path);

/// Reads the log at `path`. On failure `error` says "what; what to do" without the file's name, and
/// the recording is empty. Throws std::bad_alloc only.
Recording read_recording(const std::string& path, std::string* error);

}  // namespace memlab::whatif
