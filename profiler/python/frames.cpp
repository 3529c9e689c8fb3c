#include "profiler/python/frames.hpp"

#include <algorithm>

#include "profiler/python/frame_access.hpp"

namespace memlab::profiler::python {
namespace {

// Frames followed beyond the limit in search of the shim that ends an activation.
constexpr std::size_t max_activation = 8192;

/// Reads the frames.
template <std::size_t row>
class FrameWalker {
  public:
    FrameWalker(const Interpreter& interpreter, std::size_t limit, const CodeLocationCache& cache,
                Frames& out)
        : interpreter_(interpreter),
          limit_(std::min(limit, out.max_frames)),
          cache_(cache.view()),
          use_cache_(out.in_main_interpreter && layout_.code_version != 0),
          out_(out) {}

    [[gnu::always_inline]] void follow(const void* thread, const void* root) {
        if constexpr (layout_.without_records()) {
            follow_frame_objects(nullptr, root);
        } else if constexpr (layout_.has_frame_objects) {
            follow_frame_objects(root, read<const void*>(thread, layout_.thread_frame_object));
        } else if constexpr (layout_.has_cframes) {
            follow_records(root);
        } else {
            follow_frames(root);
        }
    }

  private:
    using Of = Fields<row>;
    static constexpr const Layout& layout_ = Of::layout;

    /// Each frame is an activation. 3.10: a frame for each record; both lists begin with the
    /// innermost one. 3.9: without records.
    void follow_frame_objects(const void* record, const void* frame) {
        constexpr bool has_records = !layout_.without_records();
        for (; (record != nullptr || !has_records) && frame != nullptr && !full();
             frame = Of::previous_frame(frame)) {
            const void* previous = nullptr;
            if constexpr (has_records) {
                previous = read<const void*>(record, layout_.cframe_previous);
                if (previous == nullptr || !records_on_stack_.is_next(record)) {
                    return;
                }
            }
            const char* const code = Of::code_of(frame);
            if (!is_a(code, interpreter_.types.code)) {
                discard();
                return;
            }
            // -1 before the first one.
            const auto number = read<std::int32_t>(frame, layout_.frame_instruction);
            out_.frames()[out_.frame_count++] = {
                code, number < 0 ? -1 : number * layout_.frame_instruction_unit, 0};
            out_.all_known = false;
            close(record);
            record = previous;
        }
        out_.truncated |= frame != nullptr && full();
    }

    /// What was read is no frame: there are none.
    void discard() {
        out_.implausible = true;
        out_.frame_count = 0;
        out_.activation_count = 0;
    }

    /// Up to 3.12: one record on the C stack per activation; the outermost is in the thread state.
    void follow_records(const void* record) {
        while (record != nullptr && !full()) {
            const auto* previous = read<const void*>(record, layout_.cframe_previous);
            if (previous == nullptr || !records_on_stack_.is_next(record)) {
                return;
            }
            const auto* frame = read<const void*>(record, layout_.cframe_frame);
            while ((frame = add_cached(frame)) != nullptr) {
                if (full()) {
                    out_.truncated |= !Of::is_shim(frame);
                    break;
                }
                if (Of::is_shim(frame)) {
                    break;
                }
                if (!add(frame)) {
                    return;
                }
                if (layout_.frame_is_entry != 0 &&
                    read<std::uint8_t>(frame, layout_.frame_is_entry) != 0) {
                    break;
                }
                frame = Of::previous_frame(frame);
            }
            close(record);
            record = previous;
        }
        out_.truncated |= record != nullptr && full();
    }

    /// From 3.13 on: each activation ends with a shim frame, which is on the C stack.
    void follow_frames(const void* frame) {
        std::size_t followed = 0;
        for (; (frame = add_cached(frame)) != nullptr; frame = Of::previous_frame(frame)) {
            if (Of::is_shim(frame)) {
                if (!records_on_stack_.is_next(frame)) {
                    break;
                }
                close(frame);
                followed = 0;
                if (full()) {
                    out_.truncated |= has_caller(frame);
                    return;
                }
            } else if (full()) {
                out_.truncated = true;  // search the end of this activation
                if (++followed > max_activation) {
                    break;
                }
            } else if (!add(frame)) {
                return;
            }
        }
        out_.frame_count = closed_frames();
    }

    bool full() const {
        return out_.frame_count >= limit_ || out_.activation_count >= Frames::max_activations;
    }

    std::size_t closed_frames() const {
        return out_.activation_count == 0 ? 0 : out_.activations[out_.activation_count - 1].end;
    }
    bool closed() const { return closed_frames() == out_.frame_count; }

    /// Whether Python frames lie beyond a shim: not if it is the first, or, from 3.15 on, in front
    /// of the one in the thread's state.
    bool has_caller(const void* shim) const {
        const void* const previous = Of::previous_frame(shim);
        return previous != nullptr && !Of::is_shim(previous);
    }

    void close(const void* record) {
        if (!closed()) {
            Activation& activation = out_.activations[out_.activation_count++];
            activation.stack_address = reinterpret_cast<std::uintptr_t>(record) & 0xffff'ffff'ffffU;
            activation.end = out_.frame_count & 0xffffU;
        }
    }

    std::ptrdiff_t instruction_offset(const void* frame, const char* code) const {
        return read<const char*>(frame, layout_.frame_instruction) - (code + layout_.code_bytes);
    }

    /// Adds this frame and its callers while their locations are cached; those passed the checks
    /// before. Nearly all are cached, a shim's never is. Returns the first frame that is not cached
    /// or does not fit.
    [[gnu::always_inline]] const void* add_cached(const void* frame) {
        if (!use_cache_ || full()) {
            return frame;
        }
        const CodeLocationCache::View cache = cache_;
        RawFrame* const frames = out_.frames();
        RawFrame* next = frames + out_.frame_count;
        const RawFrame* const end = frames + limit_;
        while (frame != nullptr && next != end && !Of::is_shim(frame)) {
            const char* const code = Of::code_of(frame);
            const std::ptrdiff_t offset = instruction_offset(frame, code);
            const std::uint32_t id =
                cache.find(code, static_cast<std::uint32_t>(offset),
                           [code](std::uint64_t identity, std::uint32_t /*table_bytes*/) {
                               return identity == versioned_identity(layout_, code);
                           });
            if (id == 0) {
                break;
            }
            *next++ = {code, static_cast<std::int32_t>(offset), id};
            frame = Of::previous_frame(frame);
        }
        out_.frame_count = static_cast<std::size_t>(next - frames);
        return frame;
    }

    /// Adds a frame after checking it. If it is no frame, discards all frames and returns false.
    bool add(const void* frame) {
        const char* const code = Of::code_of(frame);
        if (!is_a(code, interpreter_.types.code)) {
            discard();
            return false;
        }
        const std::ptrdiff_t offset = instruction_offset(frame, code);
        // Frames that are being set up are skipped, as by the interpreter's own API.
        if (offset >= first_traceable(layout_, code) ||
            read<std::uint8_t>(frame, layout_.frame_owner) == owned_by_generator) {
            const std::ptrdiff_t clamped = std::clamp<std::ptrdiff_t>(offset, INT32_MIN, INT32_MAX);
            out_.frames()[out_.frame_count++] = {code, static_cast<std::int32_t>(clamped), 0};
            out_.all_known = false;
        }
        return true;
    }

    const Interpreter& interpreter_;
    const std::size_t limit_;
    const CodeLocationCache::View cache_;
    const bool use_cache_;
    Frames& out_;
    RecordsOnStack records_on_stack_;
};

}  // namespace

[[gnu::hot]] void read_frames(const Interpreter& interpreter, std::size_t limit,
                              const CodeLocationCache& cache, Frames& out) {
    out.frame_count = 0;
    out.activation_count = 0;
    out.truncated = false;
    out.implausible = false;
    out.all_known = true;
    out.thread_state = nullptr;
    const ThreadState state(interpreter);
    if (state.root == nullptr) {
        return;
    }
    out.thread_state = state.thread;
    out.in_main_interpreter = state.in_main_interpreter;
    with_layout(interpreter, [&]<std::size_t row>(std::integral_constant<std::size_t, row>) {
        FrameWalker<row>(interpreter, limit, cache, out).follow(state.thread, state.root);
    });
}

}  // namespace memlab::profiler::python
