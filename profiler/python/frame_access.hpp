// What the readers of frames share: the fields of a frame, the records on the stack, and where a
// thread's frames begin. For their sources alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "profiler/python/interpreter.hpp"
#include "profiler/python/layouts.hpp"

namespace memlab::profiler::python {

// A record farther from the previous one is on another stack.
inline constexpr std::uintptr_t max_stack = std::uintptr_t{1} << 30;

/// What frames of the version with this row of `layouts` hold.
template <std::size_t row>
struct Fields {
    static constexpr const Layout& layout = layouts[row];

    static bool is_shim(const void* frame) {
        return layout.frame_is_entry == 0 &&
               read<std::uint8_t>(frame, layout.frame_owner) == owned_by_c_stack;
    }
    static const char* code_of(const void* frame) {
        const auto word = read<std::uintptr_t>(frame, layout.frame_code);
        return reinterpret_cast<const char*>(word & ~layout.frame_tags);
    }
    static const void* previous_frame(const void* frame) {
        return read<const void*>(frame, layout.frame_previous);
    }
    static std::uintptr_t first_local(const void* frame) {
        return read<std::uintptr_t>(frame, layout.first_local()) & ~layout.frame_tags;
    }
};

/// Follows the records on this thread's stack, from the innermost one on.
class RecordsOnStack {
  public:
    /// Whether it is above the previous one.
    bool is_next(const void* record) {
        const auto at = reinterpret_cast<std::uintptr_t>(record);
        if (at <= last_ || at - last_ > max_stack || at % alignof(void*) != 0 || at >> 48 != 0) {
            return false;
        }
        last_ = at;
        return true;
    }

  private:
    std::uintptr_t last_ = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
};

/// What the calling thread's frames are found from.
struct ThreadState {
    void* thread = nullptr;
    const void* root = nullptr;  ///< the innermost record or frame; null: there are no frames
    bool in_main_interpreter = false;

    [[gnu::always_inline]] explicit ThreadState(const Interpreter& interpreter) {
        if (interpreter.is_initialized() == 0) {
            return;
        }
        thread = interpreter.thread_state();
        if (thread == nullptr) {
            return;
        }
        const Layout& layout = *interpreter.layout;
        const auto* const innermost = read<const void*>(thread, layout.thread_frame);
        const auto* const owner = read<const void*>(thread, layout.thread_interpreter);
        // Only after the root was read: see frames.hpp.
        if (interpreter.is_initialized() == 0) {
            return;
        }
        root = innermost;
        in_main_interpreter = owner == interpreter.main_interpreter;
    }
};

/// Calls `visit` with the row of the interpreter's layout, as a constant.
template <class Visit>
[[gnu::always_inline]] inline void with_layout(const Interpreter& interpreter, const Visit& visit) {
    static_assert(std::size(layouts) == 7);
    switch (interpreter.layout - std::begin(layouts)) {
        case 0:
            visit(std::integral_constant<std::size_t, 0>());
            break;
        case 1:
            visit(std::integral_constant<std::size_t, 1>());
            break;
        case 2:
            visit(std::integral_constant<std::size_t, 2>());
            break;
        case 3:
            visit(std::integral_constant<std::size_t, 3>());
            break;
        case 4:
            visit(std::integral_constant<std::size_t, 4>());
            break;
        case 5:
            visit(std::integral_constant<std::size_t, 5>());
            break;
        default:
            visit(std::integral_constant<std::size_t, 6>());
            break;
    }
}

/// Passes each frame of the thread, whatever the limit, innermost first: visit(frame) ends it by
/// false. close(record) follows the frames of each activation that has a record on the stack.
template <std::size_t row>
class EachFrame {
  public:
    /// False if `visit` ended it.
    template <class Visit, class Close>
    [[gnu::always_inline]] static bool follow(const void* thread, const void* root,
                                              const Visit& visit, const Close& close) {
        if constexpr (layout_.has_frame_objects) {
            const void* frame =
                layout_.has_cframes ? read<const void*>(thread, layout_.thread_frame_object) : root;
            for (; frame != nullptr; frame = Of::previous_frame(frame)) {
                if (!visit(frame)) {
                    return false;
                }
            }
            return true;
        } else if constexpr (layout_.has_cframes) {
            return follow_records(root, visit, close);
        } else {
            return follow_frames(root, visit, close);
        }
    }

  private:
    using Of = Fields<row>;
    static constexpr const Layout& layout_ = Of::layout;

    template <class Visit, class Close>
    [[gnu::always_inline]] static bool follow_records(const void* record, const Visit& visit,
                                                      const Close& close) {
        RecordsOnStack records_on_stack;
        while (record != nullptr) {
            const auto* previous = read<const void*>(record, layout_.cframe_previous);
            if (previous == nullptr || !records_on_stack.is_next(record)) {
                break;
            }
            const auto* frame = read<const void*>(record, layout_.cframe_frame);
            for (; frame != nullptr && !Of::is_shim(frame); frame = Of::previous_frame(frame)) {
                if (!visit(frame)) {
                    return false;
                }
                if (layout_.frame_is_entry != 0 &&
                    read<std::uint8_t>(frame, layout_.frame_is_entry) != 0) {
                    break;
                }
            }
            close(record);
            record = previous;
        }
        return true;
    }

    template <class Visit, class Close>
    [[gnu::always_inline]] static bool follow_frames(const void* frame, const Visit& visit,
                                                     const Close& close) {
        RecordsOnStack records_on_stack;
        for (; frame != nullptr; frame = Of::previous_frame(frame)) {
            if (!Of::is_shim(frame)) {
                if (!visit(frame)) {
                    return false;
                }
            } else if (records_on_stack.is_next(frame)) {
                close(frame);
            } else {
                break;
            }
        }
        return true;
    }
};

}  // namespace memlab::profiler::python
