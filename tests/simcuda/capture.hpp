// Stream capture: which streams are being captured into which graph, and what a capture forbids.
//
// Three rules, as the driver has them:
//  - Work on a capturing stream becomes a node of its graph; waiting for an event recorded in a
//    capture draws the waiting stream into it.
//  - What cannot be part of a capture (waiting for or asking about a capturing stream, touching the
//    legacy stream that depends on it, context events and waits) fails with 900 or 906 and
//    invalidates the capture, in every mode; its end then fails with 901.
//  - A call that could disturb some capture (allocating, freeing, querying an event) is refused
//  with
//    900, and the capture invalidated, while one is under way whose mode forbids it: a global one
//    anywhere, a thread-local one of the calling thread. A thread that exchanged its own mode to
//    thread-local looks at its own captures only, to relaxed at none.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tests/simcuda/driver_abi.hpp"
#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {

struct Graph;

struct Capture {
    uint64_t id = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread;
    Stream* origin = nullptr;
    Graph* graph = nullptr;
    bool owns_graph = true;  // not when captured into a graph of the program
    bool again = false;      // the graph's nodes are captured again, in their order
    size_t next = 0;         // the one that comes next
    bool invalidated = false;
    std::vector<Stream*> members;  // origin included
};

// CUDA_SUCCESS, or 900 for a call that could disturb a capture.
CUresult refuse_unsafe_call();

// 900, invalidating the captures, when any stream of the context is capturing.
CUresult refuse_while_capturing(Context& context);
// The same for one stream, and 906 for the legacy stream when a stream ordered with it captures.
CUresult refuse_while_capturing(Stream& stream);

// Adds work to the stream's graph; 901 if the capture is invalid.
CUresult capture_work(Stream& stream, Work work, Node** node = nullptr);

// The memory of the next node of a graph that is captured again, if that allocates so much; else 0.
uint64_t allocated_before(const Stream& stream, uint64_t bytes);

// A stream, or a whole context, goes: its captures are ended without a graph.
void end_captures(Context& context);
void end_capture_of(Stream& stream);

void invalidate(Capture& capture);

}  // namespace memlab::simcuda
