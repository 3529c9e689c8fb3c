// Records the program's annotations, from memlab.h or NVTX: scopes, ranges, marks and names of
// memory and threads; and the intervals whose figures it asks for. Before there is a session they
// are buffered, and recorded at its start if still in effect. Nothing here throws, and an
// annotation costs no more than an event.
//
// Thread-safety: all functions, from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "profiler/annotation_names.hpp"

namespace memlab::trace {
struct IntervalFilter;
}

namespace memlab::interpose {

class Session;

/// The interned name for a text; never null. Out of host memory one name stands for all.
const profiler::AnnotationName* annotation_name(std::uint32_t domain,
                                                std::string_view text) noexcept;
/// The same for a text of the program's that may be null and has no domain.
const profiler::AnnotationName* own_annotation_name(const char* text) noexcept;
/// The same for the name of memory.
const profiler::AnnotationName* label_name(const char* text) noexcept;
/// What labelled memory holds. Null, as for no text, where it cannot be told as it is: longer than
/// a name may be, or one more than are kept.
const profiler::AnnotationName* label_detail(const char* text) noexcept;
/// The number of an NVTX domain.
std::uint32_t register_domain(std::string_view name) noexcept;

void begin_scope(std::uint32_t domain, const profiler::AnnotationName* name) noexcept;
/// Ends the innermost scope of this domain in the calling thread.
void end_scope(std::uint32_t domain) noexcept;

/// Begins a process-wide range; pass the result, never 0, to end_range().
std::uint64_t begin_range(const profiler::AnnotationName* name) noexcept;
void end_range(std::uint64_t range) noexcept;

void add_mark(const profiler::AnnotationName* name) noexcept;

/// `thread` is the kernel's thread id.
void name_thread(std::uint32_t thread, const profiler::AnnotationName* name) noexcept;

/// Names the allocation that contains `address` (with `base_only`: that begins there); `detail`
/// says what it holds, null: not known. False when there is none.
bool label_memory(std::uint64_t address, bool base_only, const profiler::AnnotationName* name,
                  const profiler::AnnotationName* detail = nullptr) noexcept;

/// Begins an interval of the memory that the filter takes; pass the result to end_interval(). 0:
/// nothing is recorded, or too many are open. A forked child has none of its parent's.
std::uint64_t begin_interval(const trace::IntervalFilter& filter) noexcept;
/// Writes the text and a null byte to `to` if `size` bytes suffice, as memlab.h returns texts.
/// Returns its length.
std::size_t copy_text(std::string_view text, char* to, std::size_t size) noexcept;
/// Ends the interval and writes its JSON (model/interval_document.hpp), with at most `max_sites`
/// sites, and a null byte to `json` if `size` bytes suffice; then it is forgotten. Returns the
/// length of the JSON, or 0: there is no such interval, or no host memory.
std::size_t end_interval(std::uint64_t interval, std::size_t max_sites, char* json,
                         std::size_t size) noexcept;

/// Records the buffered annotations of the started session. Call with the start lock held.
void record_early_annotations(Session& session);

/// Whether the program's CUDA calls reach this library, that is, whether it was preloaded. NVTX and
/// Kokkos also load it where LD_PRELOAD did not reach a process (sudo, env -i); nothing can be
/// recorded there, and a report would claim that no memory was allocated.
bool is_preloaded();

/// Notes in the report if NVTX in this process is connected to another tool.
void report_other_nvtx_tool(Session& session);

/// In a forked child: drops open scopes, buffered annotations and interned names.
void forget_annotations_after_fork();

}  // namespace memlab::interpose
