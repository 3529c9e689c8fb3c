// The virtual timeline: what was submitted to the simulated GPU, in what order it may run, and when
// it completes.
//
// Work submitted to a stream becomes an Op with the ops it must wait for: its stream's last one,
// what the legacy default stream implies, event waits, context barriers. Ops complete at a virtual
// time that only a test, or a host that waits, moves. With no test in control nothing takes time
// and every stream is open, so that each op completes as it is submitted: an idle GPU.
//
// Contents move when an op *completes*, in the order of completion: memory reused too early is
// really overwritten too early, in a deterministic way. Only pageable host memory is read at
// submission, as the real driver stages it.
//
// Each op also carries a vector clock (one component a stream) of what is ordered before it
// whatever the timing: race.hpp judges by that clock, so a missing fence is found on an idle GPU
// too. What the host saw complete (a synchronize, a successful query) is ordered before all that
// the host submits afterwards; host threads are taken as one, which misses races between threads
// that do not synchronize, and never reports one that is not there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/simcuda/driver_abi.hpp"

namespace memlab::simcuda {

struct Stream;
struct Context;

using Clock = std::vector<uint64_t>;
void join(Clock& into, const Clock& from);

struct Access {
    uint64_t address;
    uint64_t bytes;
    bool write;
    uint64_t owner = 0;  // 0: the owner that the address has when the work is submitted
};

// What one call puts on a stream, or one node into a graph.
struct Work {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    bool takes_time = false;              // kernels and copies take their stream's work time
    uint64_t duration = 0;                // virtual nanoseconds
    std::string name = "simcuda_kernel";  // what a tool is told that a kernel is called
    std::function<void()> action;
    bool calls_host = false;  // the action is the program's own function: run without the lock
    std::string prints;       // a kernel's output
    // What it waits for beside other work: another process's doing. None: nothing.
    std::function<bool()> ready;
    std::vector<Access> accesses;
    bool early = false;         // may begin before the kernel before it in its stream has ended
    uint64_t memory = 0;        // of a memory node: the address
    uint64_t memory_bytes = 0;  // of an allocation node
    CUDA_MEMSET_NODE_PARAMS fill{};  // of a fill
};

struct Op {
    std::shared_ptr<Stream> stream;              // until it is done
    std::vector<std::shared_ptr<Op>> waits_for;  // emptied when done
    uint64_t duration = 0;
    uint64_t submitted = 0;  // virtual time
    uint64_t completed = 0;  // virtual time, when done
    std::function<void()> action;
    bool calls_host = false;
    std::function<bool()> ready;
    bool running = false;
    bool done = false;
    Clock clock;
    Clock begin;  // of a kernel: what is ordered before its beginning; else empty
};
using OpPtr = std::shared_ptr<Op>;

uint64_t virtual_now();

// Completes what can complete at the present virtual time.
void settle();

// Moves virtual time on by so many nanoseconds, completing ops in order.
void advance(uint64_t nanoseconds);

// Puts work on a stream that is not capturing. `after`: further ops to wait for.
OpPtr submit(Stream& stream, Work work, const std::vector<OpPtr>& after = {},
             const Clock& after_clock = {});

// Waits as a host thread does: virtual time moves to the op's completion. If a closed stream is in
// the way, waits for another thread to open it, and gives up after a minute by ending the process
// with a line on stderr: a deadlock in the test. `burns`: it takes processor time meanwhile, as a
// thread that spins does.
void wait_for(const OpPtr& op, bool burns = false);
bool is_done(const OpPtr& op);

// What the host has seen complete.
void host_saw(const Clock& clock);
const Clock& host_clock();

// The newest ops of all streams of a context, and the join of their clocks.
std::vector<OpPtr> newest_ops(Context& context, Clock& clock);
void wait_for_context(Context& context);
// What kernels of the context printed goes to standard output. Call where the driver does that:
// where the host waits.
void show_output(Context& context);

// A stream's component of the clocks, reused once the host has seen all that its last user did.
size_t take_clock_index();
void return_clock_index(size_t index, uint64_t epoch);
uint64_t first_epoch(size_t index);

}  // namespace memlab::simcuda
