// The frame chosen for a site, on stacks of real programs.
#include "report/symbols/frame_choice.hpp"
#include "tests/catch.hpp"
#include "tests/unit/report/stack_frames.hpp"

using namespace memlab::model;

using namespace memlab::report;

TEST_CASE("Python: the innermost line of the program's own, and the library that called CUDA") {
    const char* torch = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
    std::vector<StackFrame> stack = {
        frame_in("/usr/lib/libcuda.so.1", "cuMemAlloc_v2"),
        frame_in("/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so", ""),
        frame_in(torch, "at::native::mm(at::Tensor const&)", "/pytorch/aten/src/mm.cpp", 7),
        frame_in("/venv/lib/python3.12/site-packages/torch/lib/libtorch_python.so",
                 "THPVariable_mm"),
        python_frame("linear", "/venv/lib/python3.12/site-packages/torch/nn/functional.py", 90),
        python_frame("Model.forward", "/src/model.py", 42),
        python_frame("<module>", "/src/train.py", 7),
        python_frame("_run_code", "<frozen runpy>", 88),
    };
    CHECK(choose_frame(stack) == 5);
    CHECK(through_library(stack, 5) == "libc10_cuda.so");
    // A package run as a program: there is no other Python code.
    stack.erase(stack.begin() + 5, stack.begin() + 7);
    CHECK(choose_frame(stack) == 2);
    stack[2].file.clear();
    CHECK(choose_frame(stack) == 4);
    CHECK_FALSE(is_cuda_or_memlab(python_frame("cuGraph", "cuda_runtime.h", 1)));
}

TEST_CASE("an extension module of the program's own is nearer than its Python") {
    const std::vector<StackFrame> stack = {
        frame_in("/usr/lib/libcudart.so.13", "cudaMalloc"),
        frame_in("/src/build/ext.so", "make(int)", "/src/ext.cpp", 12),
        python_frame("<module>", "/src/train.py", 7),
    };
    CHECK(choose_frame(stack) == 1);
}

TEST_CASE("shared runtime: the caller of libcudart") {
    const std::vector<StackFrame> stack = {
        frame_in("/usr/local/cuda/lib64/libcudart.so.13", ""),
        frame_in("/usr/local/cuda/lib64/libcudart.so.13", "cudaMalloc"),
        frame_in("/app", "train(int)", "/src/train.cu", 12),
        frame_in("/app", "main", "/src/main.cu", 3),
    };
    CHECK(choose_frame(stack) == 2);
    CHECK(through_library(stack, 2).empty());
}

TEST_CASE("static runtime: its nameless and named internals within the program are skipped") {
    const std::vector<StackFrame> stack = {
        frame_in("/app", ""),
        frame_in("/app", "libcudart_static_5382377d5c772c9d197c0cda9fd9742ee6ad893c"),
        frame_in("/app", ""),
        frame_in("/app", "cudaMalloc"),
        frame_in("/app", "cudaError cudaMalloc<float>(float**, unsigned long)",
                 "/usr/local/cuda/include/cuda_runtime.h", 700),
        frame_in("/app", "train(int)"),
        frame_in("/app", "main"),
    };
    CHECK(choose_frame(stack) == 5);
}

TEST_CASE("a function of the program may be called cudaSomething") {
    const std::vector<StackFrame> stack = {
        frame_in("/app", "cudaMalloc"),
        frame_in("/app", "cudaCheckedAlloc(unsigned long)", "/src/util.cu", 9),
    };
    CHECK(choose_frame(stack) == 1);
    CHECK_FALSE(is_cuda_or_memlab(frame_in("/app", "custom_alloc")));
    CHECK_FALSE(is_cuda_or_memlab(frame_in("/app", "curl_easy_init")));
}

TEST_CASE("the program's line is preferred to a library's name, and the library is told") {
    const std::vector<StackFrame> stack = {
        frame_in("/lib/libcudart.so.13", "cudaMalloc"),
        frame_in("/lib/libcublas.so.13", "cublasCreate_v2"),
        frame_in("/app", "std::make_unique<Handle>()", "/usr/include/c++/12/bits/unique_ptr.h", 99),
        frame_in("/app", "Model::Model()", "/src/model.cpp", 42),
    };
    CHECK(choose_frame(stack) == 3);
    CHECK(through_library(stack, 3) == "libcublas.so.13");
}

TEST_CASE("no line anywhere: the nearest name; no name: the nearest place") {
    const std::vector<StackFrame> named = {
        frame_in("/lib/libcuda.so.1", ""),
        frame_in("/lib/libc10_cuda.so", ""),
        frame_in("/lib/libc10_cuda.so", "c10::cuda::raw_alloc(unsigned long)"),
        frame_in("/usr/bin/python3", "_PyEval_EvalFrameDefault"),
    };
    CHECK(choose_frame(named) == 2);
    const std::vector<StackFrame> nameless = {frame_in("/lib/libcuda.so.1", ""),
                                              frame_in("/app", "")};
    CHECK(choose_frame(nameless) == 1);
    const std::vector<StackFrame> only_cuda = {frame_in("/lib/libcuda.so.1", "cuMemAlloc_v2")};
    CHECK(choose_frame(only_cuda) == 0);
    CHECK(choose_frame({}) == no_frame);
    CHECK(through_library({}, no_frame).empty());
}

TEST_CASE("a system header is better than a bare name, worse than the program's own line") {
    const std::vector<StackFrame> stack = {
        frame_in("/app", "plain_name"),
        frame_in("/app", "thrust::malloc()", "/usr/local/cuda/include/thrust/detail/malloc.h", 5),
    };
    CHECK(choose_frame(stack) == 1);
}

TEST_CASE("the program's own function comes before a line of the system's libraries") {
    std::vector<StackFrame> stack = {
        frame_in("/usr/lib/x86_64-linux-gnu/libcudart.so.13", "cudaMalloc"),
        frame_in("/app", "load_weights"),
        frame_in("/app", "main"),
        frame_in("/usr/lib/x86_64-linux-gnu/libc.so.6", "__libc_start_call_main",
                 "./csu/../sysdeps/nptl/libc_start_call_main.h", 58),
        frame_in("/usr/lib/x86_64-linux-gnu/libc.so.6", "__libc_start_main_impl",
                 "./csu/../csu/libc-start.c", 360),
        frame_in("/app", "_start"),
    };
    CHECK(choose_frame(stack) == 1);
    // Stripped: the frame in the program, not the startup code.
    stack[1].function.clear();
    stack[2].function.clear();
    CHECK(choose_frame(stack) == 1);
    stack.erase(stack.begin() + 1, stack.begin() + 3);
    CHECK(choose_frame(stack) == 1);
    // A library is chosen as if its debug information were not installed.
    stack = {
        frame_in("/usr/lib/libcudart.so.13", "cudaMalloc"),
        frame_in("/usr/lib64/libmagma.so.2", "magma_malloc", "/usr/src/debug/alloc.cpp", 6),
        frame_in("/app", "main", "/src/main.cpp", 8),
    };
    CHECK(choose_frame(stack) == 2);
    stack[2].file.clear();
    CHECK(choose_frame(stack) == 1);
    // The line table of a static program has libc's functions, too.
    stack = {frame_in("/app", "cudaMalloc"), frame_in("/app", "main"),
             frame_in("/app", "__libc_start_call_main", "libc_start_call_main.h", 58)};
    CHECK(choose_frame(stack) == 1);
    // Subfolders have programs and their plugins.
    stack = {frame_in("/usr/lib/solver/plugin.so", "f", "/src/f.cpp", 1), frame_in("/app", "main")};
    CHECK(choose_frame(stack) == 0);
}

TEST_CASE("PyTorch's plumbing between operator and memory does not stand for the site") {
    const std::vector<StackFrame> stack = {
        frame_in("/torch/lib/libc10_cuda.so",
                 "c10::cuda::CUDACachingAllocator::Native::allocate(unsigned long)"),
        frame_in("/torch/lib/libtorch_cpu.so", "at::detail::empty_generic(c10::ArrayRef<long>)"),
        frame_in("/torch/lib/libtorch_cuda.so", "at::native::empty_cuda(c10::ArrayRef<long>)"),
        frame_in("/torch/lib/libtorch_cuda.so", "at::(anonymous namespace)::wrapper_CUDA__empty()"),
        frame_in("/torch/lib/libtorch_cpu.so", "at::_ops::add_Tensor::call(at::Tensor const&)"),
        frame_in("/torch/lib/libtorch_python.so", "torch::autograd::THPVariable_add(_object*)"),
    };
    CHECK(choose_frame(stack) == 4);
    // Nothing else on the stack: the allocator is chosen.
    CHECK(choose_frame({stack[0], stack[1]}) == 0);
}

TEST_CASE("backward, which has no Python, is known by its node") {
    const char* torch = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so";
    const char* node =
        "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor, "
        "std::allocator<at::Tensor> >&&)";
    std::vector<StackFrame> stack = {
        frame_in(torch, "at::_ops::mm::redispatch(c10::DispatchKeySet, at::Tensor const&)"),
        frame_in(torch, "torch::autograd::generated::AddmmBackward0_apply_functional(bool)"),
        frame_in(torch, node),
        frame_in(torch, "torch::autograd::Engine::thread_main(int)"),
    };
    CHECK(choose_frame(stack) == 2);
    // The workspace that cuBLAS keeps is not the operator's that happened to come first.
    stack.insert(stack.begin(), frame_in(torch, "at::cuda::setWorkspaceForHandle(cublasContext*)"));
    CHECK(choose_frame(stack) == 0);
    stack[0] = python_frame("backward", "/src/own_function.py", 3);
    CHECK(choose_frame(stack) == 0);
}

TEST_CASE("backward: the forward's line, and the operation of backward that it stands for") {
    const char* cpu = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so";
    const char* cuda = "/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so";
    std::vector<StackFrame> stack = {
        frame_in(cuda, "c10::cuda::CUDACachingAllocator::malloc(unsigned long)"),
        frame_in(cpu, "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)"),
        frame_in(cpu,
                 "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)"),
        frame_in(cpu, "torch::autograd::Engine::evaluate_function(torch::autograd::Node*)"),
        forward_marker(),
        python_frame("Linear.forward", "/venv/lib/python3.12/site-packages/torch/nn/linear.py", 9),
        python_frame("Model.forward", "/src/model.py", 42),
        python_frame("<module>", "/src/train.py", 7),
    };
    CHECK(stack[4].is_forward_marker());
    CHECK_FALSE(stack[5].is_forward_marker());
    CHECK(choose_frame(stack) == 6);
    CHECK(backward_node(stack, 6) == "AddmmBackward0");
    CHECK(backward_frames(stack, 6).marker == 4);
    CHECK(backward_frames(stack, 6).node == 2);
    // Not where a frame before the marker was chosen.
    CHECK(backward_node(stack, 2).empty());
    CHECK(backward_node({}, no_frame).empty());
    // Gradients that the engine sums itself.
    stack.erase(stack.begin() + 2);
    CHECK(choose_frame(stack) == 5);
    CHECK(backward_node(stack, 5) == "backward");
    // The marker is never chosen, and --skip passes over it.
    CHECK(choose_frame({forward_marker(), frame_in(cpu, "")}) == 1);
    FrameSkips skips;
    CHECK(skips.add("*").empty());
    StackFrame marker = forward_marker();
    classify(marker, skips);
    CHECK_FALSE(marker.skipped);
}
