// The recorded program as a sequence of allocator calls: allocations, frees and their completions
// on the device, without the decisions of the recorded allocator. The input of a what-if.
//
// One Program per device, with the device memory of cudaMalloc and cudaMallocAsync, whoever served
// it (memlab's pool, the driver with MEMLAB_POOL=off). Arrays, managed memory, VMM and graphs count
// as outside memory, since such allocators do not serve them.
//
// Any log that decodes (truncated, hostile, begun late) gives a consistent program: an allocation
// is freed at most once, and completed at most once and after its free. Events that do not fit (a
// free of nothing, a second allocation at a live address) are counted in `inconsistencies`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "report/reading/reader.hpp"
#include "report/whatif/steps.hpp"
#include "trace/address_map.hpp"
#include "trace/reading/log_reader.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report::whatif {

/// A segment that memlab's pool got in the recording, or an address range that it mapped first.
struct RecordedSegment {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint32_t context = 0;
};

/// The figures of the recorded run, for comparison.
struct Recorded {
    std::uint64_t reserved_peak = 0;   ///< of memlab's pool; 0 if it was not used
    std::uint64_t segment_allocs = 0;  ///< segments and mappings that the pool got
    std::uint64_t segment_frees = 0;
    std::uint64_t pooled = 0;               ///< allocations that the pool served
    std::uint64_t failed = 0;               ///< allocations that failed
    std::vector<RecordedSegment> segments;  ///< in the order in which the pool got them
};

struct Program {
    trace::DeviceInfo device;
    Allocations allocations;
    Steps steps;
    Recorded recorded;
    /// Maximum sampled memory in use on the device besides this program's allocations and memlab's
    /// pool (contexts, code, other kinds of memory, other processes).
    std::uint64_t outside_bytes = 0;
    bool outside_known = false;
    bool uses_pytorch = false;   ///< PyTorch's allocator library was seen in a call stack
    bool streams_known = false;  ///< every allocation names its stream (all are cudaMallocAsync)
    std::uint64_t inconsistencies = 0;
    std::uint64_t attempts = 0;  ///< steps of that kind: failed allocations that a model can try
};

struct Recording {
    trace::ProcessInfo process;
    std::vector<trace::OptionValue> options;
    std::vector<Program> programs;  ///< by device index; devices without allocations are left out
    trace::LogStatus status = trace::LogStatus::not_a_log;
    std::string warning;  ///< the log is damaged: what and where; "" for a log that was cut off
    std::uint64_t events = 0;
};

/// Builds programs from the records of a log: use it as the sink of a log reader, then call
/// finish(). Call sites are resolved by the report of the same log.
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
        struct Live {
            std::uint32_t allocation = 0;
            std::uint64_t size = 0;  ///< bytes that serve it
        };
        trace::AddressMap<Live> live;
        trace::AddressMap<std::uint32_t> pending;            ///< freed, not complete: allocations
        std::uint64_t reserved = 0;                          ///< of memlab's pools
        std::map<std::uint32_t, std::uint64_t> reserved_in;  ///< the same, by context
        std::uint64_t driver_served = 0;  ///< of allocations that the driver served
        bool any_streamless = false;
    };

    Building& building(std::uint32_t device) { return devices_[device]; }
    void allocate(Building& to, const trace::Event& record);
    void free(Building& to, const trace::Event& record);
    void complete(Building& to, std::uint64_t address);
    void context_lost(Building& to, std::uint32_t context);
    void reserve(Building& to, const trace::Event& record);
    void release(Building& to, const trace::Event& record);
    void note(StepKind kind, Building& to, std::uint32_t subject);

    Recording recording_;
    std::map<std::uint32_t, Building> devices_;
    std::map<std::uint32_t, std::uint32_t> device_of_context_;
    std::uint64_t events_ = 0;
    bool uses_pytorch_ = false;
};

/// Of a GPU whose memory an allocator of the program's cuts, as far as was seen from inside, only
/// what that handed out: the rest is its segments.
void prefer_allocators(std::vector<Program>& programs);

/// The error for a file that is not an event log: "what; what to do".
std::string not_a_log_error(const trace::LogReadResult& read, const std::string& path);

/// Reads the log at `path`. On failure `error` says "what; what to do" without the file's name, and
/// the recording is empty. Throws std::bad_alloc only.
Recording read_recording(const std::string& path, std::string* error);
/// The same, and the report of the log, in one reading.
Recording read_recording(const std::string& path, ReadResult* report, std::string* error);

}  // namespace memlab::report::whatif
