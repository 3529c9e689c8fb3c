// Streams and events, and the way of work onto them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/capture.hpp"
#include "tests/simcuda/graph.hpp"
#include "tests/simcuda/pool.hpp"
#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {
namespace {

struct Handles {
    std::map<Stream*, std::shared_ptr<Stream>> streams;  // those with a handle of their own
    std::set<Event*> events;
    // Of contexts that have ended. Never deleted, so that no other event gets the address.
    std::set<Event*> ended_events;
    uint64_t next_stream_id = 0;
};

Handles& handles() {
    static Handles& once = *new Handles;
    return once;
}

// Two events at least a real measuring step apart never read as simultaneous.
constexpr double nanoseconds_in_a_millisecond = 1e6;

uint64_t completion_of(const Event& event) {
    uint64_t latest = 0;
    for (const OpPtr& op : event.ops) {
        latest = std::max(latest, op->completed);
    }
    return latest;
}

bool is_complete(const Event& event) {
    if (event.imported) {
        return event.shared->complete.load() >= event.shared->recorded.load();
    }
    return std::all_of(event.ops.begin(), event.ops.end(), is_done);
}

CUresult record(CUevent hEvent, CUstream hStream) {
    Event* event = find_event(hEvent);
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (event == nullptr || &root(*event->context) != &root(*stream->context)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->capture) {
        if (stream->capture->invalidated) {
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        event->capture = stream->capture;
        event->capture_nodes = stream->capture_tail;
        event->recorded = true;
        return CUDA_SUCCESS;
    }
    if (CUresult refused = refuse_while_capturing(*stream)) {
        return refused;
    }
    Work work;
    if (event->shared != nullptr) {
        work.action = [shared = event->shared, number = event->shared->recorded.fetch_add(1) + 1] {
            shared->complete.store(number);
        };
    }
    const OpPtr op = submit(*stream, std::move(work));
    event->capture.reset();
    event->recorded = true;
    event->ops = {op};
    event->clock = op->clock;
    return CUDA_SUCCESS;
}

CUresult wait(CUstream hStream, CUevent hEvent) {
    Event* event = find_event(hEvent);
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (event == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->capture) {
        Capture& capture = *event->capture;
        if (capture.invalidated) {
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        if (stream->capture && stream->capture != event->capture) {
            invalidate(capture);
            invalidate(*stream->capture);
            return CUDA_ERROR_STREAM_CAPTURE_MERGE;
        }
        if (stream->legacy) {
            invalidate(capture);
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        if (!stream->capture) {
            stream->capture = event->capture;
            stream->capture_tail.clear();
            capture.members.push_back(stream);
        }
        for (Node* node : event->capture_nodes) {
            if (std::find(stream->capture_tail.begin(), stream->capture_tail.end(), node) ==
                stream->capture_tail.end()) {
                stream->capture_tail.push_back(node);
            }
        }
        return CUDA_SUCCESS;
    }
    if (stream->capture) {
        if (!event->recorded) {
            return CUDA_SUCCESS;
        }
        invalidate(*stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (CUresult refused = refuse_while_capturing(*stream)) {
        return refused;
    }
    Work work;
    if (event->imported) {
        work.ready = [shared = event->shared, number = event->shared->recorded.load()] {
            return shared->complete.load() >= number;
        };
    }
    submit(*stream, std::move(work), event->ops, event->clock);
    return CUDA_SUCCESS;
}

CUresult create_stream(CUstream* phStream, unsigned flags, int priority) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (phStream == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!take(*context, Taken::stream)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    auto stream = add_stream(*context, flags, std::clamp(priority, -5, 0));
    *phStream = handle(stream.get());
    return CUDA_SUCCESS;
}

CUresult destroy_stream(CUstream hStream) {
    auto it = handles().streams.find(reinterpret_cast<Stream*>(hStream));
    if (it == handles().streams.end()) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const std::shared_ptr<Stream> stream = it->second;
    handles().streams.erase(it);
    end_capture_of(*stream);
    Context& context = *stream->context;
    give_back(context, Taken::stream);
    if (stream->last) {
        context.orphans.push_back(stream->last);
    }
    return_clock_index(stream->clock_index, stream->epoch);
    std::erase(context.streams, stream);
    return CUDA_SUCCESS;
}

CUresult add_callback(CUstream hStream, std::function<void()> function) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_HOST;
    work.calls_host = true;
    work.action = std::move(function);
    return enqueue(*stream, std::move(work));
}

CUresult destroy_event(CUevent hEvent) {
    Event* event = find_event(hEvent);
    if (event == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    handles().events.erase(event);
    delete event;
    return CUDA_SUCCESS;
}

SharedEvent* map_shared_event(int file) {
    void* const mapped =
        mmap(nullptr, sizeof(SharedEvent), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return mapped == MAP_FAILED ? nullptr : static_cast<SharedEvent*>(mapped);
}

CUresult elapsed(float* milliseconds, CUevent hStart, CUevent hEnd) {
    const Event* start = find_event(hStart);
    const Event* end = find_event(hEnd);
    if (milliseconds == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (start == nullptr || end == nullptr || !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    settle();
    if (!is_complete(*start) || !is_complete(*end)) {
        return CUDA_ERROR_NOT_READY;
    }
    const auto from = static_cast<double>(completion_of(*start));
    const auto to = static_cast<double>(completion_of(*end));
    *milliseconds = static_cast<float>((to - from) / nanoseconds_in_a_millisecond);
    return CUDA_SUCCESS;
}

}  // namespace

CUstream handle(Stream* stream) {
    return reinterpret_cast<CUstream>(stream);
}

CUevent handle(Event* event) {
    return reinterpret_cast<CUevent>(event);
}

Event* find_event(CUevent event) {
    auto* pointer = reinterpret_cast<Event*>(event);
    if (handles().ended_events.contains(pointer)) {
        std::fprintf(
            stderr, "simcuda: an event of a context that has ended was used, which is undefined\n");
        std::fflush(nullptr);
        std::_Exit(88);
    }
    return handles().events.contains(pointer) ? pointer : nullptr;
}

std::shared_ptr<Stream> add_stream(Context& context, unsigned flags, int priority) {
    auto stream = std::make_shared<Stream>();
    stream->context = &context;
    stream->flags = flags;
    stream->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    stream->priority = priority;
    stream->id = ++handles().next_stream_id;
    stream->clock_index = take_clock_index();
    stream->epoch = first_epoch(stream->clock_index);
    context.streams.push_back(stream);
    handles().streams.emplace(stream.get(), stream);
    return stream;
}

Stream& legacy_stream(Context& context) {
    if (!context.legacy) {
        context.legacy = add_stream(context, 0, 0);
        context.legacy->legacy = true;
        context.legacy->blocking = false;
        handles().streams.erase(context.legacy.get());
    }
    return *context.legacy;
}

CUresult find_stream(CUstream handle, Stream*& stream) {
    const bool per_thread = handle == CU_STREAM_PER_THREAD ||
                            (handle == nullptr && call_flavor() == Flavor::per_thread);
    if (!per_thread && handle != nullptr && handle != CU_STREAM_LEGACY) {
        auto it = handles().streams.find(reinterpret_cast<Stream*>(handle));
        if (it == handles().streams.end()) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        stream = it->second.get();
        return CUDA_SUCCESS;
    }
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (per_thread) {
        auto& own = context->per_thread[std::this_thread::get_id()];
        if (!own) {
            own = add_stream(*context, 0, 0);
            handles().streams.erase(own.get());
        }
        stream = own.get();
    } else {
        stream = &legacy_stream(*context);
    }
    return CUDA_SUCCESS;
}

void forget_events(Context& context) {
    std::erase_if(handles().streams,
                  [&](const auto& entry) { return entry.second->context == &context; });
    std::erase_if(handles().events, [&](Event* event) {
        if (event->context != &context) {
            return false;
        }
        event->ops.clear();
        handles().ended_events.insert(event);
        return true;
    });
}

CUresult enqueue(Stream& stream, Work work) {
    if (stream.capture) {
        return capture_work(stream, std::move(work));
    }
    if (CUresult refused = refuse_while_capturing(stream)) {
        return refused;
    }
    if (options().queue == 0) {
        submit(stream, std::move(work));
        return CUDA_SUCCESS;
    }
    const std::shared_ptr<Stream> kept = stream.shared_from_this();
    while (stream.queue.size() >= options().queue) {
        const OpPtr oldest = stream.queue.front();
        wait_for(oldest);
        std::erase_if(stream.queue, [](const OpPtr& op) { return op->done; });
    }
    stream.queue.push_back(submit(stream, std::move(work)));
    return CUDA_SUCCESS;
}

CUresult enqueue_and_wait(Stream& stream, Work work) {
    if (CUresult refused = refuse_while_capturing(stream)) {
        return refused;
    }
    wait_for(submit(stream, std::move(work)));
    show_output(*stream.context);
    return CUDA_SUCCESS;
}

}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuStreamCreate(CUstream* phStream, unsigned int Flags) {
    return create_stream(phStream, Flags, 0);
}

CUresult sim_cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
    return create_stream(phStream, flags, priority);
}

CUresult sim_cuStreamDestroy(CUstream hStream) {
    return destroy_stream(hStream);
}

CUresult sim_cuStreamDestroy_v2(CUstream hStream) {
    return destroy_stream(hStream);
}

CUresult sim_cuStreamQuery(CUstream hStream) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (CUresult refused = refuse_while_capturing(*stream)) {
        return refused;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    settle();
    // The legacy stream answers for the streams that it is ordered with.
    Clock clock;
    bool busy = !is_done(stream->last);
    if (stream->last) {
        join(clock, stream->last->clock);
    }
    if (stream->legacy) {
        for (const auto& other : stream->context->streams) {
            if (other->blocking && other->last) {
                busy = busy || !other->last->done;
                join(clock, other->last->clock);
            }
        }
    }
    if (busy) {
        return CUDA_ERROR_NOT_READY;
    }
    host_saw(clock);
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamSynchronize(CUstream hStream) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (CUresult refused = refuse_while_capturing(*stream)) {
        return refused;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    if (stream->legacy) {
        wait_for(submit(*stream, Work{}));
    } else {
        wait_for(stream->last);
    }
    show_output(*stream->context);
    release_idle_pool_memory();
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int) {
    return wait(hStream, hEvent);
}

CUresult sim_cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (flags == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetPriority(CUstream hStream, int* priority) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (priority == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (streamId == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *streamId = stream->id;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (pctx == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = handle(stream->context);
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
    if (pGreenCtx != nullptr) {
        *pGreenCtx = nullptr;
    }
    return sim_cuStreamGetCtx(hStream, pCtx);
}

CUresult sim_cuStreamGetDevice(CUstream hStream, CUdevice* device) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = stream->context->device;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                                 unsigned int flags) {
    if (callback == nullptr || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return add_callback(hStream, [=] { callback(hStream, CUDA_SUCCESS, userData); });
}

CUresult sim_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
    if (fn == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return add_callback(hStream, [=] { fn(userData); });
}

CUresult sim_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr, size_t, unsigned int) {
    Stream* stream = nullptr;
    return find_stream(hStream, stream);
}

CUresult sim_cuStreamCopyAttributes(CUstream dst, CUstream src) {
    Stream* stream = nullptr;
    const CUresult error = find_stream(dst, stream);
    return error != CUDA_SUCCESS ? error : find_stream(src, stream);
}

CUresult sim_cuEventCreate(CUevent* phEvent, unsigned int Flags) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    constexpr unsigned known =
        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (phEvent == nullptr || (Flags & ~known) != 0 ||
        ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!take(*context, Taken::event)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    auto* event = new Event;
    event->context = context;
    event->flags = Flags;
    handles().events.insert(event);
    *phEvent = handle(event);
    return CUDA_SUCCESS;
}

CUresult sim_cuEventDestroy(CUevent hEvent) {
    return destroy_event(hEvent);
}

CUresult sim_cuEventDestroy_v2(CUevent hEvent) {
    return destroy_event(hEvent);
}

// A handle names the process and its descriptor of the memory that has the state.
CUresult sim_cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent hEvent) {
    Event* const event = find_event(hEvent);
    if (pHandle == nullptr || event == nullptr || (event->flags & CU_EVENT_INTERPROCESS) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const int file = memfd_create("simcuda-event", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof(SharedEvent)) != 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    event->shared = map_shared_event(file);
    const int name[] = {getpid(), file};
    std::memset(pHandle, 0, sizeof *pHandle);
    std::memcpy(pHandle, name, sizeof name);
    return CUDA_SUCCESS;
}

CUresult sim_cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
    int name[2];
    std::memcpy(name, &handle, sizeof name);
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", name[0], name[1]);
    const int file = name[0] == getpid() ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (CUresult error = sim_cuEventCreate(phEvent, CU_EVENT_DISABLE_TIMING)) {
        close(file);
        return error;
    }
    Event& event = *find_event(*phEvent);
    event.shared = map_shared_event(file);
    event.imported = event.recorded = true;
    close(file);
    return CUDA_SUCCESS;
}

CUresult sim_cuEventRecord(CUevent hEvent, CUstream hStream) {
    return record(hEvent, hStream);
}

CUresult sim_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int) {
    return record(hEvent, hStream);
}

CUresult sim_cuEventQuery(CUevent hEvent) {
    Event* event = find_event(hEvent);
    if (event == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->capture) {
        invalidate(*event->capture);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    settle();
    if (!is_complete(*event)) {
        return CUDA_ERROR_NOT_READY;
    }
    host_saw(event->clock);
    return CUDA_SUCCESS;
}

CUresult sim_cuEventSynchronize(CUevent hEvent) {
    Event* event = find_event(hEvent);
    if (event == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->capture) {
        invalidate(*event->capture);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    // Copies: another thread may record the event again or destroy it meanwhile.
    const std::vector<OpPtr> ops = event->ops;
    const Clock clock = event->clock;
    Context& context = *event->context;
    // On a GPU the event's flags decide, whatever the context's are. Here the thread sleeps, too,
    // where nobody asked for it: tests run side by side.
    const bool burns = (event->flags & CU_EVENT_BLOCKING_SYNC) == 0 &&
                       (event->context->flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC;
    for (const OpPtr& op : ops) {
        wait_for(op, burns);
    }
    host_saw(clock);
    show_output(context);
    release_idle_pool_memory();
    return CUDA_SUCCESS;
}

CUresult sim_cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
    return elapsed(pMilliseconds, hStart, hEnd);
}

CUresult sim_cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
    return elapsed(pMilliseconds, hStart, hEnd);
}

CUresult sim_cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
    Context* context = find_context(hCtx);
    Event* event = find_event(hEvent);
    if (context == nullptr || !context->alive) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (event == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->context != context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (CUresult refused = refuse_while_capturing(*context)) {
        return refused;
    }
    settle();
    event->capture.reset();
    event->recorded = true;
    event->clock = context->barrier_clock;
    event->ops = newest_ops(*context, event->clock);
    if (event->ops.empty()) {
        // For the time that the event stands for.
        auto op = std::make_shared<Op>();
        op->done = true;
        op->completed = virtual_now();
        event->ops.push_back(op);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
    Context* context = find_context(hCtx);
    Event* event = find_event(hEvent);
    if (context == nullptr || !context->alive) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (event == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->capture) {
        invalidate(*event->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (CUresult refused = refuse_while_capturing(*context)) {
        return refused;
    }
    for (Context* member : family(*context)) {
        member->barrier.insert(member->barrier.end(), event->ops.begin(), event->ops.end());
        join(member->barrier_clock, event->clock);
    }
    return CUDA_SUCCESS;
}
