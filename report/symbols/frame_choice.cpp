#include "report/symbols/frame_choice.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "model/python_source.hpp"
#include "report/symbols/allocator_frames.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
    for (const std::string_view prefix : prefixes) {
        if (text.starts_with(prefix)) {
            return true;
        }
    }
    return false;
}

/// "cudaMalloc", "cuMemAlloc_v2", "cudaMalloc<float>", but not "custom" or "cudaless".
bool is_api_name(std::string_view name) {
    const std::size_t prefix = name.starts_with("cuda") ? 4 : name.starts_with("cu") ? 2 : 0;
    return prefix != 0 && name.size() > prefix &&
           std::isupper(static_cast<unsigned char>(name[prefix])) != 0;
}

bool is_system_header(std::string_view file) {
    return starts_with_any(file, {"/usr/include/", "/usr/lib/gcc/", "/usr/local/cuda"}) ||
           file.find("/include/c++/") != std::string_view::npos ||
           file.find("/targets/x86_64-linux/include/") != std::string_view::npos;
}

/// True for libraries directly in the system's library folders (packages have subfolders of these).
bool is_system_library(std::string_view module) {
    const std::size_t slash = module.rfind('/');
    if (slash == std::string_view::npos || module.find(".so", slash) == std::string_view::npos) {
        return false;
    }
    std::string_view folder = module.substr(0, slash);
    if (folder.ends_with("-linux-gnu")) {
        folder = folder.substr(0, folder.rfind('/'));
    }
    return folder == "/lib" || folder == "/lib64" || folder == "/usr/lib" || folder == "/usr/lib64";
}

/// Code that calls main or a thread's function: the end of every stack.
bool is_startup(const StackFrame& frame) {
    if (frame.python) {
        return false;
    }
    const std::string module = base_name(frame.module);
    return starts_with_any(module, {"libc.so", "libpthread.so", "ld-linux", "ld-musl", "libc-2.",
                                    "libstdc++.so", "libgcc_s.so", "libc++.so", "libc++abi.so"}) ||
           frame.function == "_start" || frame.function == "_dl_start_user" ||
           frame.function == "start_thread" || frame.function == "__clone3" ||
           frame.function.starts_with("__libc_start_") || frame.function == "__libc_csu_init";
}

/// Library code whose lines are known: not the application's own.
bool is_library_code(const StackFrame& frame) {
    return frame.python ? model::is_python_library(frame.file)
                        : is_system_header(frame.file) || model::is_python_library(frame.file) ||
                              model::is_python_library(frame.module);
}

/// A node of PyTorch's backward graph; and what keeps cuBLAS's workspaces, which are not the
/// operator's that happened to come first.
bool is_operation(const StackFrame& frame) {
    return is_backward_node(frame) || frame.function.starts_with("at::cuda::setWorkspace");
}

bool has_line(const StackFrame& frame) {
    return !frame.file.empty() && frame.line > 0;
}

}  // namespace

bool is_backward_node(const StackFrame& frame) {
    return frame.function.starts_with("torch::autograd::generated::") &&
           frame.function.find("::apply(") != std::string::npos;
}

bool is_cuda_or_memlab(const StackFrame& frame) {
    if (frame.python) {
        return false;
    }
    const std::string module = base_name(frame.module);
    if (starts_with_any(module, {"libcuda.so", "libcudart.so", "libcudart-", "libcupti.so",
                                 "libmemlab.so", "libnvidia-"})) {
        return true;
    }
    // The static runtime is part of the application's binary. Its functions have no debug
    // information; the application's own functions may well be called cudaSomething.
    const std::string file = base_name(frame.file);
    if (starts_with_any(file, {"cuda_runtime.h", "cuda_runtime_api.h", "memlab.h"})) {
        return true;
    }
    if (!frame.file.empty()) {
        return false;
    }
    return starts_with_any(frame.function, {"libcudart_static_", "__cudart", "cudart::"}) ||
           is_api_name(frame.function);
}

namespace {

FrameRank rank_of(const StackFrame& frame, bool tell_allocators) {
    if (is_cuda_or_memlab(frame)) {
        return FrameRank::cuda;
    }
    if (is_startup(frame) || frame.is_forward_marker()) {
        return FrameRank::startup;
    }
    const bool allocator = tell_allocators && is_allocator_frame(frame);
    if (has_line(frame) && !is_system_library(frame.module)) {
        return allocator                ? FrameRank::allocator_line
               : is_library_code(frame) ? FrameRank::library_line
                                        : FrameRank::own_line;
    }
    if (!frame.function.empty()) {
        return allocator             ? FrameRank::allocator_function
               : is_operation(frame) ? FrameRank::operation
                                     : FrameRank::function;
    }
    return allocator ? FrameRank::allocator_nameless : FrameRank::nameless;
}

}  // namespace

void classify(StackFrame& frame, const FrameSkips& skips) {
    frame.rank = rank_of(frame, skips.defaults());
    frame.skipped = frame.rank < FrameRank::startup && skips.skips(frame);
}

std::size_t choose_frame(const std::vector<StackFrame>& stack) {
    if (stack.empty()) {
        return no_frame;
    }
    const auto rank = [&stack](std::size_t i) {
        return stack[i].rank == FrameRank::unclassified ? rank_of(stack[i], true) : stack[i].rank;
    };
    // Stripped internals of a static runtime have no name. Frames nearer to the leaf than a CUDA
    // frame are CUDA's, too, unless another library is in between.
    std::size_t begin = 0;
    for (std::size_t i = 0; i < stack.size(); ++i) {
        if (rank(i) == FrameRank::cuda) {
            begin = i + 1;
        } else if (!stack[i].function.empty()) {
            break;
        }
    }
    const auto best = [&](std::size_t from, bool skipped_too) {
        std::size_t found = no_frame;
        FrameRank best_rank = FrameRank::cuda;
        for (std::size_t i = from; i < stack.size(); ++i) {
            if ((skipped_too || !stack[i].skipped) && rank(i) < best_rank) {
                found = i;
                best_rank = rank(i);
            }
        }
        return found;
    };
    const std::size_t chosen = best(begin, true);
    if (chosen == no_frame) {
        return 0;
    }
    if (!stack[chosen].skipped) {
        return chosen;
    }
    const std::size_t caller = best(chosen + 1, false);
    return caller != no_frame && rank(caller) < FrameRank::startup ? caller : chosen;
}

BackwardFrames backward_frames(const std::vector<StackFrame>& stack, std::size_t chosen) {
    BackwardFrames found;
    const std::size_t end = chosen == no_frame ? 0 : std::min(chosen, stack.size());
    for (std::size_t i = 0; i < end && found.marker == no_frame; ++i) {
        if (stack[i].is_forward_marker()) {
            found.marker = i;
        } else if (found.node == no_frame && is_backward_node(stack[i])) {
            found.node = i;
        }
    }
    return found.marker == no_frame ? BackwardFrames{} : found;
}

std::string backward_node(const std::vector<StackFrame>& stack, std::size_t chosen) {
    const BackwardFrames backward = backward_frames(stack, chosen);
    if (backward.marker == no_frame) {
        return {};
    }
    if (backward.node == no_frame) {
        return "backward";
    }
    return short_function_name(stack[backward.node].function);
}

std::string through_library(const std::vector<StackFrame>& stack, std::size_t chosen) {
    if (chosen == no_frame || chosen >= stack.size()) {
        return {};
    }
    if (stack[chosen].python) {
        for (std::size_t i = 0; i < chosen; ++i) {
            if (!stack[i].module.empty() && !is_cuda_or_memlab(stack[i])) {
                return base_name(stack[i].module);
            }
        }
        return {};
    }
    for (std::size_t i = chosen; i-- > 0;) {
        if (is_cuda_or_memlab(stack[i])) {
            return {};
        }
        const std::string& module = stack[i].module;
        if (!module.empty() && module != stack[chosen].module) {
            return base_name(module);
        }
    }
    return {};
}

}  // namespace memlab::report
