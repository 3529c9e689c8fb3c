// What the program says of itself, by memlab.h or NVTX, on its way into the recording: scopes,
// ranges, marks and names of memory and threads. Before there is a session they wait for one, as
// far as they are still true then. Nothing here throws, and a note costs the program no more than
// an event.
//
// Thread-safety: all functions, from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "profiler/annotation_names.hpp"

namespace memlab::interpose {

class Session;

/// The name for a text; never null, but one that stands for all when the host has no memory.
const profiler::AnnotationName* annotation_name(std::uint32_t domain,
                                                std::string_view text) noexcept;
/// The number of a domain of NVTX.
std::uint32_t note_domain(std::string_view name) noexcept;

void begin_scope(std::uint32_t domain, const profiler::AnnotationName* name) noexcept;
/// Ends the innermost scope of this domain in the calling thread.
void end_scope(std::uint32_t domain) noexcept;

/// A range of the process; the result is end_range()'s. Never 0.
std::uint64_t begin_range(const profiler::AnnotationName* name) noexcept;
void end_range(std::uint64_t range) noexcept;

void note_mark(const profiler::AnnotationName* name) noexcept;

/// `thread` is the kernel's number.
void name_thread(std::uint32_t thread, const profiler::AnnotationName* name) noexcept;

/// Names the allocation that holds `address` (with `base_only`: that begins there). False when
/// there is none.
bool label_memory(std::uint64_t address, bool base_only,
                  const profiler::AnnotationName* name) noexcept;

/// The session has started: what is still open before it is recorded. With the start lock held.
void record_early_annotations(Session& session);

/// Says so in the report when NVTX in this process talks to somebody else.
void look_for_other_nvtx_tools(Session& session);

/// In a forked child: it has no scopes, and names that its recording does not know.
void forget_annotations_after_fork();

}  // namespace memlab::interpose
