// The objects behind the driver's handles: devices, contexts, streams, events, and the current
// context of each thread.
//
// A handle is its object's address, looked up in a registry before use: a stale or foreign handle
// is answered with the error the driver has for it and never dereferenced.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/simcuda/driver_abi.hpp"
#include "tests/simcuda/options.hpp"
#include "tests/simcuda/timeline.hpp"
#include "tests/simcuda/used_bytes.hpp"

namespace memlab::simcuda {

struct Capture;
struct Node;
struct Pool;

struct Stream : std::enable_shared_from_this<Stream> {
    Context* context = nullptr;
    bool legacy = false;
    bool blocking = true;  // ordered with the legacy default stream
    unsigned flags = 0;
    int priority = 0;
    uint64_t id = 0;
    size_t clock_index = 0;
    uint64_t epoch = 0;
    OpPtr last;
    std::deque<OpPtr> queue;  // SIMCUDA_QUEUE: those that may not be done
    bool closed = false;      // a test keeps its work from completing
    uint64_t work_time = 0;   // virtual nanoseconds of a kernel or copy
    std::shared_ptr<Capture> capture;
    std::vector<Node*> capture_tail;  // what the next captured work depends on
};

// How often an event was recorded, and up to which of these it is complete, in memory that the
// processes share which have it.
struct SharedEvent {
    std::atomic<uint64_t> recorded{0};
    std::atomic<uint64_t> complete{0};
};

struct Event {
    Context* context = nullptr;
    unsigned flags = 0;
    bool recorded = false;
    std::vector<OpPtr> ops;         // all done: the event is complete
    SharedEvent* shared = nullptr;  // with other processes; never unmapped
    bool imported = false;
    Clock clock;
    std::shared_ptr<Capture> capture;  // recorded in a capture: no event to the host
    std::vector<Node*> capture_nodes;
};

struct Context {
    int device = 0;
    bool primary = false;
    bool alive = true;
    unsigned flags = 0;
    uint64_t id = 0;
    Context* parent = nullptr;  // of a green context: the context that owns the memory
    std::shared_ptr<Stream> legacy;
    std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
    std::vector<std::shared_ptr<Stream>> streams;  // all of them, the default streams included
    std::vector<OpPtr> orphans;                    // newest ops of destroyed streams
    Clock orphan_clock;
    std::vector<OpPtr> barrier;  // cuCtxWaitEvent: what all later work waits for
    Clock barrier_clock;
    std::vector<Context*> peers;
    std::vector<int> peer_devices;  // whose memory of other processes it opened
    size_t limits[16] = {};
    uint64_t taken = 0;  // bytes that the driver took in it on its own
    uint64_t local = 0;  // of these: local memory of all threads that can be resident
    bool limit_changed = false;
    std::string output;  // what its kernels printed and nothing showed yet
    unsigned usage = 1;  // cuCtxCreate's and cuCtxAttach's, less cuCtxDetach's
};

struct Device {
    int ordinal = 0;
    int file = -1;          // the memfd of all its memory
    uint64_t file_end = 0;  // offsets are never reused: the file is sparse
    UsedBytes used;         // bytes of physical memory, contexts' included
    Context* primary = nullptr;
    unsigned primary_retained = 0;
    unsigned primary_flags = 0;
    Pool* default_pool = nullptr;
    Pool* current_pool = nullptr;
};

std::vector<Device>& devices();
Device* find_device(CUdevice ordinal);

CUcontext handle(Context* context);
CUstream handle(Stream* stream);
CUevent handle(Event* event);
Context* find_context(CUcontext context);  // NULL: no such context
Event* find_event(CUevent event);

// The calling thread's context: CUDA_ERROR_INVALID_CONTEXT without one,
// CUDA_ERROR_CONTEXT_IS_DESTROYED when it was destroyed.
CUresult current_context(Context*& context);
void create_devices();
// Frees all that belongs to the context. The object stays, dead, for threads that have it current.
void end_context(Context& context);
// Takes device memory as SIMCUDA_TAKES says; false where the device has not that much left. It goes
// back with give_back(), or with the context.
bool take(Context& context, Taken what);
void give_back(Context& context, Taken what);
// Resizes its local memory to what all threads that can be resident on its device need for a kernel
// with so many bytes a thread. It never shrinks: cuCtxSetLimit gives it back.
bool grow_local_memory(Context& context, uint64_t bytes_per_thread);
std::vector<Context*> live_contexts();
// The context and, for a primary one, its green contexts: what its events capture and its waits
// hold back.
std::vector<Context*> family(Context& context);
Context* add_context(int device, unsigned flags, bool primary, Context* parent = nullptr);

// A stream handle of the program, null and special handles included, in the current call's flavor.
CUresult find_stream(CUstream handle, Stream*& stream);
std::shared_ptr<Stream> add_stream(Context& context, unsigned flags, int priority);
Stream& legacy_stream(Context& context);
void forget_events(Context& context);

// Puts work on a stream, or into the graph that the stream is captured into.
CUresult enqueue(Stream& stream, Work work);
// What the calling thread's next cuLaunchKernel of the function of this address does:
// simcuda_kernel.
extern thread_local const Work* declared_kernel;
// The same and then waits for it: refused in a capture.
CUresult enqueue_and_wait(Stream& stream, Work work);

// The context whose memory, barriers and streams a green context shares: itself for others.
inline Context& root(Context& context) {
    return context.parent != nullptr ? *context.parent : context;
}

}  // namespace memlab::simcuda
