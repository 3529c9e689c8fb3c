// What is read of all frames, whatever the limit: their hash, and the nn.Modules that they call.
#include "profiler/python/frame_access.hpp"
#include "profiler/python/frames.hpp"
#include "profiler/word_mix.hpp"

namespace memlab::profiler::python {
namespace {

/// Hashes all that a FrameWalker would read, or more: every frame, to the last one.
template <std::size_t row>
class FrameHasher {
  public:
    FrameHasher(const Interpreter& interpreter, const NnModuleCall& nn_call)
        : interpreter_(interpreter), nn_call_(nn_call) {}

    [[gnu::always_inline]] FramesHash hash(const void* thread, const void* root) {
        if constexpr (layout_.code_version == 0) {
            return {};
        } else {
            const bool complete = EachFrame<row>::follow(
                thread, root, [this](const void* frame) { return add(frame); },
                [this](const void* record) { close(record); });
            return {.hash = complete ? mix(frames_ ^ mix_factor, records_) | hashed_frames : 0,
                    .none = complete && closed_ == 0,
                    .nn_modules = nn_modules_};
        }
    }

  private:
    using Of = Fields<row>;
    static constexpr const Layout& layout_ = Of::layout;

    static constexpr std::size_t max_frames = 256;

    /// The code object, by address and identity, and the instruction's address tell the place;
    /// whether a frame that is being set up counts depends on its owner, too. False if this is no
    /// code object, or one without an identity, or there are too many frames.
    [[gnu::always_inline]] bool add(const void* frame) {
        const char* const code = Of::code_of(frame);
        if (!is_a(code, interpreter_.types.code) || ++count_ > max_frames) {
            return false;
        }
        const std::uint64_t identity = versioned_identity(layout_, code);
        if (code == nn_call_.code && identity == nn_call_.identity) {
            nn_modules_ = hash_nn_module(nn_modules_, Of::first_local(frame));
        }
        const bool generator = read<std::uint8_t>(frame, layout_.frame_owner) == owned_by_generator;
        const std::uint64_t place = read<std::uintptr_t>(frame, layout_.frame_instruction) +
                                    (identity | std::uint64_t{generator} << 63) * mix_factor;
        frames_ = mix(reinterpret_cast<std::uintptr_t>(code) ^ frames_, place ^ mix_factor);
        return identity != 0;
    }

    [[gnu::always_inline]] void close(const void* record) {
        records_ =
            mix((reinterpret_cast<std::uintptr_t>(record) << 16 | count_) ^ records_, mix_factor);
        closed_ = count_;
    }

    const Interpreter& interpreter_;
    const NnModuleCall nn_call_;
    std::size_t count_ = 0;
    std::size_t closed_ = 0;  ///< in activations whose record was reached
    std::uint64_t frames_ = 1;
    std::uint64_t records_ = 1;
    std::uint64_t nn_modules_ = 0;
};

}  // namespace

[[gnu::hot]] FramesHash hash_frames(const Interpreter& interpreter, const NnModuleCall& nn_call) {
    const ThreadState state(interpreter);
    if (state.root == nullptr) {
        return {.none = true};
    }
    FramesHash result;
    // Other interpreters count versions on their own.
    if (state.in_main_interpreter) [[likely]] {
        with_layout(interpreter, [&]<std::size_t row>(std::integral_constant<std::size_t, row>) {
            result = FrameHasher<row>(interpreter, nn_call).hash(state.thread, state.root);
        });
    }
    return result;
}

std::size_t read_nn_modules(const Interpreter& interpreter, const NnModuleCall& nn_call,
                            std::span<std::uintptr_t> modules) {
    constexpr std::size_t max_frames = 65536;
    std::size_t count = 0;
    const ThreadState state(interpreter);
    if (state.root == nullptr || nn_call.code == nullptr) {
        return 0;
    }
    with_layout(interpreter, [&]<std::size_t row>(std::integral_constant<std::size_t, row>) {
        std::size_t frames = 0;
        EachFrame<row>::follow(
            state.thread, state.root,
            [&](const void* frame) {
                const char* const code = Fields<row>::code_of(frame);
                if (code == nn_call.code &&
                    identity_of_nn_call(layouts[row], code) == nn_call.identity) {
                    modules[count++] = Fields<row>::first_local(frame);
                }
                return ++frames != max_frames && count != modules.size();
            },
            [](const void*) {});
    });
    return count;
}

}  // namespace memlab::profiler::python
