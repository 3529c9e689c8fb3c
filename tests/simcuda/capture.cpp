#include "tests/simcuda/capture.hpp"

#include <algorithm>
#include <map>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/graph.hpp"

namespace memlab::simcuda {
namespace {

struct Captures {
    std::vector<std::shared_ptr<Capture>> active;  // invalidated ones too, until they are ended
    uint64_t next_id = 0;
};

Captures& captures() {
    static Captures& once = *new Captures;
    return once;
}

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// May the calling thread, in its mode, disturb this capture?
bool forbids(const Capture& capture) {
    if (capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
        thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return false;
    }
    if (capture.thread == std::this_thread::get_id()) {
        return true;
    }
    return capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void leave(Capture& capture) {
    for (Stream* stream : capture.members) {
        stream->capture_tail.clear();
        stream->capture.reset();
    }
}

void finish(const std::shared_ptr<Capture>& capture, bool keep_graph) {
    if (!keep_graph && capture->owns_graph) {
        destroy_graph(*capture->graph);
    }
    leave(*capture);
    std::erase(captures().active, capture);
}

CUresult begin(CUstream hStream, CUstreamCaptureMode mode, Graph* graph,
               const CUgraphNode* dependencies, size_t count) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->legacy) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (stream->capture) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    std::vector<Node*> tail;
    for (size_t i = 0; i < count; ++i) {
        Node* node = find_node(dependencies[i]);
        if (node == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        tail.push_back(node);
    }
    auto capture = std::make_shared<Capture>();
    capture->id = ++captures().next_id;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream;
    capture->owns_graph = graph == nullptr;
    capture->graph = graph != nullptr ? graph : add_graph(&root(*stream->context));
    capture->members.push_back(stream);
    stream->capture = capture;
    stream->capture_tail = std::move(tail);
    captures().active.push_back(capture);
    return CUDA_SUCCESS;
}

// Everything that other streams of the capture did must have been joined into the origin's work.
bool all_joined(const Capture& capture) {
    std::vector<const Node*> reached(capture.origin->capture_tail.begin(),
                                     capture.origin->capture_tail.end());
    for (size_t i = 0; i < reached.size(); ++i) {
        for (const Node* before : reached[i]->dependencies) {
            if (std::find(reached.begin(), reached.end(), before) == reached.end()) {
                reached.push_back(before);
            }
        }
    }
    return std::all_of(capture.members.begin(), capture.members.end(), [&](const Stream* stream) {
        return std::all_of(
            stream->capture_tail.begin(), stream->capture_tail.end(), [&](const Node* node) {
                return std::find(reached.begin(), reached.end(), node) != reached.end();
            });
    });
}

CUresult end(CUstream hStream, CUgraph* phGraph) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    CUgraph unwanted = nullptr;
    if (phGraph == nullptr) {
        phGraph = &unwanted;
    }
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (capture->origin != stream) {
        invalidate(*capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != std::this_thread::get_id()) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    *phGraph = nullptr;
    if (capture->invalidated) {
        finish(capture, false);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (!all_joined(*capture)) {
        finish(capture, false);
        return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    *phGraph = handle(capture->graph);
    finish(capture, true);
    return CUDA_SUCCESS;
}

CUresult info(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, size_t* count) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (status == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->legacy) {
        for (const auto& other : stream->context->streams) {
            if (other->blocking && other->capture) {
                return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            }
        }
    }
    const Capture* capture = stream->capture.get();
    *status = capture == nullptr     ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return CUDA_SUCCESS;
    }
    if (id != nullptr) {
        *id = capture->id;
    }
    if (graph != nullptr) {
        *graph = handle(capture->graph);
    }
    if (dependencies != nullptr) {
        *dependencies = reinterpret_cast<const CUgraphNode*>(stream->capture_tail.data());
    }
    if (count != nullptr) {
        *count = stream->capture_tail.size();
    }
    return CUDA_SUCCESS;
}

constexpr auto recapture_failure = static_cast<CUresult>(918);

// The graph's next node gets the work; type, order and memory must be as they were.
CUresult capture_again(Stream& stream, Work work, Node** made) {
    Capture& capture = *stream.capture;
    Node* const node = capture.next < capture.graph->nodes.size()
                           ? capture.graph->nodes[capture.next].get()
                           : nullptr;
    if (node == nullptr || node->work.type != work.type || node->work.memory != work.memory ||
        node->dependencies != stream.capture_tail) {
        invalidate(capture);
        return recapture_failure;
    }
    ++capture.next;
    node->work = std::move(work);
    stream.capture_tail = {node};
    if (made != nullptr) {
        *made = node;
    }
    return CUDA_SUCCESS;
}

CUresult update_dependencies(CUstream hStream, const CUgraphNode* dependencies, size_t count,
                             unsigned flags) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (!stream->capture) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        stream->capture_tail.clear();
    }
    for (size_t i = 0; i < count; ++i) {
        if (Node* node = find_node(dependencies[i])) {
            stream->capture_tail.push_back(node);
        }
    }
    return CUDA_SUCCESS;
}

}  // namespace

void invalidate(Capture& capture) {
    capture.invalidated = true;
}

CUresult refuse_unsafe_call() {
    CUresult result = CUDA_SUCCESS;
    for (const auto& capture : captures().active) {
        if (forbids(*capture)) {
            invalidate(*capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult refuse_while_capturing(Context& context) {
    CUresult result = CUDA_SUCCESS;
    for (const Context* member : family(context)) {
        for (const auto& stream : member->streams) {
            if (stream->capture) {
                invalidate(*stream->capture);
                result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
        }
    }
    return result;
}

CUresult refuse_while_capturing(Stream& stream) {
    if (stream.capture) {
        invalidate(*stream.capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    CUresult result = CUDA_SUCCESS;
    if (stream.legacy) {
        for (const auto& other : stream.context->streams) {
            if (other->blocking && other->capture) {
                invalidate(*other->capture);
                result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            }
        }
    }
    return result;
}

CUresult capture_work(Stream& stream, Work work, Node** made) {
    if (stream.capture->invalidated) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (work.takes_time) {
        work.duration += stream.work_time;
        work.takes_time = false;
    }
    if (stream.capture->again) {
        return capture_again(stream, std::move(work), made);
    }
    Node& node = add_node(*stream.capture->graph, std::move(work), stream.capture_tail);
    stream.capture_tail = {&node};
    if (made != nullptr) {
        *made = &node;
    }
    return CUDA_SUCCESS;
}

uint64_t allocated_before(const Stream& stream, uint64_t bytes) {
    const Capture& capture = *stream.capture;
    if (!capture.again || capture.next >= capture.graph->nodes.size()) {
        return 0;
    }
    const Node& node = *capture.graph->nodes[capture.next];
    return node.work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node.work.memory_bytes == bytes
               ? node.work.memory
               : 0;
}

void end_captures(Context& context) {
    for (const auto& stream : context.streams) {
        end_capture_of(*stream);
    }
}

void end_capture_of(Stream& stream) {
    const std::shared_ptr<Capture> capture = stream.capture;
    if (!capture) {
        return;
    }
    if (capture->origin == &stream) {
        finish(capture, false);
        return;
    }
    invalidate(*capture);
    std::erase(capture->members, &stream);
    stream.capture.reset();
}

}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuStreamBeginCapture(CUstream hStream) {
    return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, nullptr, 0);
}

CUresult sim_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    return begin(hStream, mode, nullptr, nullptr, 0);
}

CUresult sim_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                         const CUgraphNode* dependencies, const CUgraphEdgeData*,
                                         size_t numDependencies, CUstreamCaptureMode mode) {
    Graph* graph = find_graph(hGraph);
    if (graph == nullptr || (numDependencies != 0 && dependencies == nullptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return begin(hStream, mode, graph, dependencies, numDependencies);
}

CUresult sim_cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode,
                                           CUgraph hGraph, CUgraphRecaptureCallback, void*) {
    Graph* graph = find_graph(hGraph);
    if (graph == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = begin(hStream, mode, graph, nullptr, 0);
    Stream* stream = nullptr;
    if (result == CUDA_SUCCESS && find_stream(hStream, stream) == CUDA_SUCCESS) {
        stream->capture->again = true;
    }
    return result;
}

// What was captured goes to a graphics API, which is not simulated.
CUresult sim_cuStreamBeginCaptureToCig(CUstream hStream, CUstreamCigCaptureParams*) {
    return begin(hStream, CU_STREAM_CAPTURE_MODE_RELAXED, nullptr, nullptr, 0);
}

CUresult sim_cuStreamEndCaptureToCig(CUstream hStream) {
    CUgraph graph = nullptr;
    const CUresult result = end(hStream, &graph);
    if (result == CUDA_SUCCESS) {
        destroy_graph(*find_graph(graph));
    }
    return result;
}

CUresult sim_cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
    return end(hStream, phGraph);
}

CUresult sim_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
    return info(hStream, captureStatus, nullptr, nullptr, nullptr, nullptr);
}

CUresult sim_cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                    cuuint64_t* id_out) {
    return info(hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr);
}

CUresult sim_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                       cuuint64_t* id_out, CUgraph* graph_out,
                                       const CUgraphNode** dependencies_out,
                                       size_t* numDependencies_out) {
    return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                numDependencies_out);
}

CUresult sim_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                       cuuint64_t* id_out, CUgraph* graph_out,
                                       const CUgraphNode** dependencies_out,
                                       const CUgraphEdgeData** edgeData_out,
                                       size_t* numDependencies_out) {
    if (edgeData_out != nullptr) {
        *edgeData_out = nullptr;
    }
    return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                numDependencies_out);
}

CUresult sim_cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                               size_t numDependencies, unsigned int flags) {
    return update_dependencies(hStream, dependencies, numDependencies, flags);
}

CUresult sim_cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                                  const CUgraphEdgeData*, size_t numDependencies,
                                                  unsigned int flags) {
    return update_dependencies(hStream, dependencies, numDependencies, flags);
}

CUresult sim_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::swap(*mode, thread_mode);
    return CUDA_SUCCESS;
}
