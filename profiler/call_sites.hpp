// Captures call stacks, native and Python, and interns them. A stack that is known is not walked,
// but recognized, and costs one look-up by the hash of its parts. Runs before any lock is held; its
// own locks are taken before the recorder's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <new>
#include <span>

#include "profiler/known_stacks.hpp"
#include "profiler/python/python_stacks.hpp"
#include "profiler/scratch.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/stack_definitions.hpp"
#include "profiler/stack_hash.hpp"
#include "profiler/stack_table.hpp"
#include "profiler/unwind/unloads.hpp"

namespace memlab::profiler {

/// Thread-safety: all member functions, from any thread. They may throw std::bad_alloc.
class CallSites {
  public:
    /// `depth`: max. frames per stack; 0: no stacks. New stacks are passed to `definitions`.
    CallSites(StackDefinitions& definitions, std::uint32_t depth, std::uint32_t max_stacks,
              python::Mode python)
        : depth_(depth), stacks_(definitions, max_stacks), python_(python, depth, definitions) {}

    /// The caller's stack, and its nn.Modules; no stack when stacks are off. On a thread that has
    /// run the function of `origin` without any Python code around it, a stack that leads through
    /// the function, with no Python code further in, ends there: trace::forward_marker follows, and
    /// the Python frames of the call that the function works for.
    CallSite capture_call_site(const CallOrigin& origin) {
        if (stack_depth() == 0) {
            return {};
        }
        if (!python_.searching()) {
            return capture(origin);
        }
        attach_python();
        const CallSite site = capture(origin);
        attach_python();
        // Found by this thread, or by another one during the walk.
        return python_.found() ? capture(origin) : site;
    }

    /// A stack of the caller's Python frames, for whom native ones say nothing, and its nn.Modules;
    /// no stack: there are none. Where they must be read it is the whole stack.
    [[gnu::hot]] CallSite capture_python_frames() {
        const bool reads = python_.found() && stack_depth() != 0;
        const python::FramesHash frames = reads ? python_.hash() : python::FramesHash{};
        if (frames.none) {
            return {};
        }
        if (frames.hash == 0) {
            return capture_call_site({});
        }
        const std::uint32_t id =
            python_.merged_stack_cache().find(hash_with(python_alone(), frames.hash));
        return {id != 0 ? id : intern_python_frames(frames.hash), python_.nn_modules_of(frames)};
    }

    /// The most frames from the next capture on. Where it was 0 at first, none is of Python.
    void set_depth(std::uint32_t depth) {
        depth_.store(depth, std::memory_order_relaxed);
        python_.set_depth(depth);
        unwind::report_missed_unload();  // what is cached has another depth
    }
    std::uint32_t stack_depth() const { return depth_.load(std::memory_order_relaxed); }

    python::NnModules& nn_modules() { return python_.nn_modules(); }

    /// Whether the calling thread is inside the garbage collector of Python.
    bool inside_collector() const { return python_.inside_collector(); }

    void before_unload() { python_.before_unload(); }

  private:
    using KnownStack = KnownStacks::Stack;

    /// If a stack led through a Python interpreter.
    void attach_python() {
        if (python_.searching() && stacks_.interpreter() != 0) [[unlikely]] {
            python_.attach(stacks_.interpreter());
        }
    }

    // Too large for small program stacks: in Scratch memory.
    struct DeepStack {
        unwind::CapturedStack native;
        python::FrameBuffer<unwind::CapturedStack::max_depth> frames;
        std::uint64_t merged[unwind::CapturedStack::max_depth];
    };

    [[gnu::hot]] CallSite capture(const CallOrigin& origin) {
        if (stack_depth() > unwind::ShortStack::max_depth) [[unlikely]] {
            return capture_deep(origin);
        }
        const std::uint64_t epoch = cacheable_epoch();
        KnownStacks known(owner_, epoch, __builtin_frame_address(0));
        if (const KnownStack* const stack = known.find()) [[likely]] {
            const CallSite site = find_known(known, *stack, origin);
            if (site.stack != 0) [[likely]] {
                if (verifies_) [[unlikely]] {
                    verify(*stack, site.stack);
                }
                return site;
            }
        }
        return capture_unknown(known, epoch, origin);
    }

    /// A recognized stack; none if it must be walked to be found.
    [[gnu::hot]] CallSite find_known(KnownStacks& known, const KnownStack& stack,
                                     const CallOrigin& origin) {
        if (!python_.found()) {
            return {stack.id};
        }
        CallSite of;
        if (serves_origins && origin.code != nullptr) {
            if (stack.origin != &origin) [[unlikely]] {
                return {};
            }
            if (stack.origin_end != KnownStack::not_there) {
                of = origin.site();
                if (of.stack != 0 && (stack.origin_end == KnownStack::without_python ||
                                      python_.innermost_activation() >= stack.origin_end)) {
                    return {find_merged(known, stack, of.stack), of.nn_modules};
                }
            }
        }
        const python::FramesHash frames = python_.hash();
        if (frames.none) {
            return {find_native(stack, origin)};
        }
        return {frames.hash != 0 ? find_merged(known, stack, frames.hash)
                                 : find_unhashed(stack, origin),
                own_or_origins(python_.nn_modules_of(frames), of)};
    }

    /// Python code that runs on behalf of an earlier call, as the backward of an autograd.Function,
    /// is in that call's nn.Modules if it calls none itself.
    static std::uint32_t own_or_origins(std::uint32_t own, const CallSite& origins) {
        return own != 0 ? own : origins.nn_modules;
    }

    /// They depend on no object that could be unloaded.
    [[gnu::noinline]] std::uint32_t intern_python_frames(std::uint64_t hash) {
        const Scratch<DeepStack> scratch;
        DeepStack* const deep = scratch.get();
        if (deep == nullptr) {
            throw std::bad_alloc();
        }
        if (!python_.read(deep->frames)) {
            return 0;
        }
        const std::size_t depth = std::min<std::size_t>(deep->frames.frame_count, stack_depth());
        StackTable::PythonWords python{};
        for (std::size_t i = 0; i < depth; ++i) {
            python[i / 64] |= std::uint64_t{1} << i % 64;
            deep->merged[i] = deep->frames.frames()[i].id;
        }
        const std::uint32_t id = stacks_.intern({deep->merged, depth}, deep->frames.truncated,
                                                cacheable_epoch(), &python);
        if (id != 0) {
            python_.merged_stack_cache().insert(hash_with(python_alone(), hash), id);
        }
        return id;
    }

    /// `parts`: python::FramesHash::hash, or the id of an origin's stack.
    std::uint32_t find_merged(KnownStacks& known, const KnownStack& stack, std::uint64_t parts) {
        return stack.parts == parts ? stack.merged : find_other_merged(known, stack, parts);
    }

    [[gnu::noinline]] std::uint32_t find_other_merged(KnownStacks& known, const KnownStack& stack,
                                                      std::uint64_t parts) {
        if (const std::uint32_t id = known.find_merged(parts)) {
            return id;
        }
        const std::uint32_t id = python_.merged_stack_cache().find(hash_with(stack.hash, parts));
        if (id != 0) {
            known.insert_merged(parts, id);
        }
        return id;
    }

    // Not inlined, like intern_merged().
    [[gnu::noinline]] std::uint32_t find_unhashed(const KnownStack& stack,
                                                  const CallOrigin& origin) {
        python::FrameBuffer<unwind::ShortStack::max_depth> frames;
        return python_.read(frames)
                   ? python_.merged_stack_cache().find(python::hash_parts(stack.hash, frames))
                   : find_native(stack, origin);
    }

    /// Of a thread that runs no Python code.
    static std::uint32_t find_native(const KnownStack& stack, const CallOrigin& origin) {
        const bool searched =
            serves_origins || origin.code == nullptr ||
            (stack.origin == &origin && stack.origin_end == KnownStack::not_there);
        return searched ? stack.id : 0;
    }

    [[gnu::noinline]] CallSite capture_unknown(KnownStacks& known, std::uint64_t epoch_before,
                                               const CallOrigin& origin) {
        unwind::ShortStack native;
        const std::uint64_t epoch = capture_native(native);
        const StackHash hash = hash_frames(native, epoch);
        KnownStacks* const keeps =
            epoch == epoch_before && known.insert(hash, stack_depth(), own_code()) ? &known
                                                                                   : nullptr;
        if (!python_.found()) {
            return {intern(native, epoch, keeps)};
        }
        const CallSite of_origin =
            serves_origins ? intern_with_origin(native, hash, epoch, origin, keeps) : CallSite{};
        if (of_origin.stack != 0) {
            return of_origin;
        }
        const CallSite own = intern_merged(native, hash, epoch, origin, keeps);
        return {own.stack, own_or_origins(own.nn_modules, of_origin)};
    }

    /// unload_epoch(); no_epoch while an object is being unloaded.
    static std::uint64_t cacheable_epoch() {
        return unwind::is_unloading() ? StackTable::no_epoch : unwind::unload_epoch();
    }

    /// By a walk, which is verified itself, and a merge with all Python frames.
    [[gnu::noinline]] void verify(const KnownStack& stack, std::uint32_t id) {
        const Scratch<DeepStack> scratch;
        DeepStack* const deep = scratch.get();
        const std::uint64_t epoch =
            deep != nullptr ? capture_native(deep->native) : StackTable::no_epoch;
        if (epoch == StackTable::no_epoch) {
            return;
        }
        const bool merges = python_.found() && !serves_origins && python_.read(deep->frames);
        if (hash_frames(deep->native, epoch) != stack.hash ||
            (merges && merge(deep->native, deep->frames, deep->merged, epoch) != id)) {
            std::abort();
        }
    }

    [[gnu::noinline]] CallSite capture_deep(const CallOrigin& origin) {
        const Scratch<DeepStack> scratch;
        DeepStack* const deep = scratch.get();
        if (deep == nullptr) {
            throw std::bad_alloc();
        }
        const std::uint64_t epoch = capture_native(deep->native);
        const StackHash hash = hash_frames(deep->native, epoch);
        if (!python_.found()) {
            return {intern(deep->native, epoch, nullptr)};
        }
        const CallSite of_origin =
            serves_origins ? intern_with_origin(deep->native, hash, epoch, origin, nullptr)
                           : CallSite{};
        if (of_origin.stack != 0) {
            return of_origin;
        }
        const CallSite own =
            intern_merged(deep->native, deep->frames, hash, epoch, origin, nullptr,
                          [&] { return merge(deep->native, deep->frames, deep->merged, epoch); });
        return {own.stack, own_or_origins(own.nn_modules, of_origin)};
    }

    /// Captures the calling thread's stack; returns its unload epoch.
    template <std::size_t capacity>
    [[gnu::always_inline]] std::uint64_t capture_native(unwind::StackBuffer<capacity>& native) {
        capture_stack(native, stack_depth());
        const std::uint64_t epoch = cacheable_epoch();
        if (python_.searching() && native.ends_early) [[unlikely]] {
            python_.attach(python_.interpreter_above(
                reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))));
        }
        return epoch;
    }

    // Not inlined, so that `frames` does not take stack space during the native walk, which would
    // then use colder cache lines.
    [[gnu::noinline]] CallSite intern_merged(const unwind::ShortStack& native,
                                             const StackHash& hash, std::uint64_t epoch,
                                             const CallOrigin& origin, KnownStacks* keeps) {
        python::FrameBuffer<unwind::ShortStack::max_depth> frames;
        return intern_merged(native, frames, hash, epoch, origin, keeps,
                             [&] { return merge_short(native, frames, epoch); });
    }

    template <class Merge>
    [[gnu::always_inline]] CallSite intern_merged(const unwind::StackView& native,
                                                  python::Frames& frames, const StackHash& hash,
                                                  std::uint64_t epoch, const CallOrigin& origin,
                                                  KnownStacks* keeps, const Merge& merge_parts) {
        if (!python_.read(frames)) {
            // A thread that works for others has no Python code of its own, at first.
            const CallSite of_origin = serves_origins
                                           ? CallSite{}
                                           : intern_with_origin(native, hash, epoch, origin, keeps);
            return of_origin.stack != 0 ? of_origin : CallSite{intern(native, epoch, keeps)};
        }
        const python::FramesHash all = python_.hash();
        const std::uint64_t hashed = all.hash;
        const StackHash parts =
            hashed != 0 ? hash_with(hash, hashed) : python::hash_parts(hash, frames);
        std::uint32_t id = python_.merged_stack_cache().find(parts);
        if (id == 0) {
            id = merge_parts();
            if (id != 0 && epoch != StackTable::no_epoch) {
                python_.merged_stack_cache().insert(parts, id);
            }
        }
        if (keeps != nullptr && hashed != 0 && id != 0) {
            keeps->insert_merged(hashed, id);
        }
        return {id, python_.nn_modules_of(all)};
    }

    /// The stack whose end the origin replaces; no stack: it is an ordinary one, which runs in the
    /// origin's nn.Modules if Python code runs inside. `keeps`: to be told what was found of the
    /// origin's function; null: nothing.
    CallSite intern_with_origin(const unwind::StackView& native, const StackHash& hash,
                                std::uint64_t epoch, const CallOrigin& origin, KnownStacks* keeps) {
        if (origin.code == nullptr || epoch == StackTable::no_epoch) {
            return {};
        }
        const ObjectSymbols::Extent code = origin.code();
        std::size_t kept = 0;  // the innermost frames, down to the function's
        for (std::size_t i = 0; i < native.depth && kept == 0; ++i) {
            if (native.addresses[i] - 1 - code.begin < code.bytes) {
                serves_origins = true;
                kept = i + 1;
            }
        }
        if (keeps != nullptr) {
            const auto runs_python = [this](std::uintptr_t address) {
                return python_.may_run_in(address);
            };
            keeps->stack().origin = &origin;
            keeps->stack().origin_end =
                kept == 0 ? KnownStack::not_there
                : std::none_of(native.addresses, native.addresses + kept, runs_python)
                    ? KnownStack::without_python
                    : native.ends[kept - 1];
        }
        if (kept == 0) {
            return {};
        }
        const CallSite of = origin.site();
        // Python code that runs inside says more.
        if (of.stack == 0 || python_.innermost_activation() < native.ends[kept - 1]) {
            return {0, of.nn_modules};
        }
        const StackHash parts = hash_with(hash, of.stack);
        const std::uint32_t known = python_.merged_stack_cache().find(parts);
        return {known != 0 ? known : append_origin(native, kept, epoch, of.stack, parts),
                of.nn_modules};
    }

    /// Of Python frames alone: not of zeros, which would make each hash_with() one.
    StackHash python_alone() const { return {mix_factor, mix_factor + stack_depth()}; }
    /// Of a native stack and find_merged()'s `parts`: unlike any python::hash_parts().
    static StackHash hash_with(const StackHash& native, std::uint64_t parts) {
        const std::uint64_t hash = mix(native.index ^ parts, native.check);
        return {hash, mix(hash ^ mix_factor, native.check ^ parts)};
    }

    std::uint32_t append_origin(const unwind::StackView& native, std::size_t kept,
                                std::uint64_t epoch, std::uint32_t origin, const StackHash& parts) {
        struct Words {
            std::uint64_t all[unwind::CapturedStack::max_depth];
            std::uint64_t python[unwind::CapturedStack::max_depth];
        };
        const Scratch<Words> scratch;
        Words* const words = scratch.get();
        if (words == nullptr) {
            throw std::bad_alloc();
        }
        const std::uint64_t marker = python_.forward_marker();
        const std::size_t count = stacks_.python_frames(origin, words->python);
        const std::size_t limit = std::min<std::size_t>(stack_depth(), std::size(words->all));
        std::size_t depth = std::min(kept, limit);
        bool truncated = kept > limit;
        bool any = false;
        StackTable::PythonWords python{};
        std::copy_n(native.addresses, depth, words->all);
        const auto add = [&](std::uint64_t frame) {
            truncated = truncated || depth == limit;
            if (depth < limit) {
                python[depth / 64] |= std::uint64_t{1} << depth % 64;
                words->all[depth++] = frame;
            }
        };
        // An origin in backward has a marker of its own, which one stands for.
        for (std::size_t i = 0; i < count; ++i) {
            if (words->python[i] != marker) {
                if (!any) {
                    add(marker);
                }
                any = true;
                add(words->python[i]);
            }
        }
        if (!any) {
            return 0;
        }
        const std::uint32_t id = stacks_.intern({words->all, depth}, truncated, epoch, &python);
        if (id != 0) {
            python_.merged_stack_cache().insert(parts, id);
        }
        return id;
    }

    std::uint32_t intern(const unwind::StackView& native, std::uint64_t epoch, KnownStacks* keeps) {
        const std::uint32_t id =
            stacks_.intern({native.addresses, native.depth}, native.truncated, epoch);
        if (keeps != nullptr) {
            keeps->stack().id = id;
        }
        return id;
    }

    [[gnu::noinline]] std::uint32_t merge_short(const unwind::StackView& native,
                                                const python::Frames& frames, std::uint64_t epoch) {
        std::uint64_t words[unwind::ShortStack::max_depth];
        return merge(native, frames, words, epoch);
    }

    std::uint32_t merge(const unwind::StackView& native, const python::Frames& frames,
                        std::span<std::uint64_t> words, std::uint64_t epoch) {
        python::MergedStack merged;
        merged.words = words;
        return python_.merge(native, frames, merged)
                   ? stacks_.intern(words.first(merged.depth), merged.truncated, epoch,
                                    &merged.python)
                   : intern(native, epoch, nullptr);
    }

    std::atomic<std::uint32_t> depth_;
    const bool verifies_ = verifies_stacks();
    const std::uint32_t owner_ = KnownStacks::new_owner();
    StackTable stacks_;
    python::PythonStacks python_;
};

}  // namespace memlab::profiler
