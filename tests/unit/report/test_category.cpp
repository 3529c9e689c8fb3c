// What PyTorch uses memory for, told from stacks of real trainings.
#include "report/symbols/category.hpp"
#include "tests/catch.hpp"
#include "tests/unit/report/stack_frames.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

constexpr const char* cpu = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so";
constexpr const char* torch = "/venv/lib/python3.12/site-packages/torch/";

StackFrame torch_frame(const char* function) {
    return frame_in(cpu, function);
}

StackFrame in_torch(const char* function, const char* file) {
    return python_frame(function, std::string(torch) + file);
}

const StackFrame malloc_frame = torch_frame(
    "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, "
    "CUstream_st*)");
const StackFrame nn_module_call_frame = in_torch("Module._call_impl", "nn/modules/module.py");
const StackFrame step = python_frame("step", "/src/train.py");
const StackFrame engine = torch_frame(
    "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)");
const StackFrame to_copy =
    torch_frame("at::_ops::_to_copy::call(at::Tensor const&, std::optional<c10::ScalarType>)");
const StackFrame differentiable = torch_frame(
    "torch::autograd::VariableType::(anonymous namespace)::mean(c10::DispatchKeySet, "
    "at::Tensor const&)");

Category of(std::vector<StackFrame> stack, bool freed_elsewhere = false) {
    stack.insert(stack.begin(), malloc_frame);
    return categorize(stack, freed_elsewhere);
}

}  // namespace

TEST_CASE("each category has its stacks") {
    CHECK(of({in_torch("Linear.forward", "nn/modules/linear.py"), nn_module_call_frame, step}) ==
          Category::activations);
    CHECK(of({differentiable, step}) == Category::activations);  // the loss
    CHECK(of({to_copy, in_torch("Module._apply", "nn/modules/module.py"),
              in_torch("Module.cuda", "nn/modules/module.py"), step}) == Category::parameters);
    CHECK(of({in_torch("Linear.__init__", "nn/modules/linear.py"), step}) == Category::parameters);
    CHECK(of({in_torch("Adam._init_group", "optim/adam.py"), in_torch("Adam.step", "optim/adam.py"),
              step}) == Category::optimizer_state);
    CHECK(of({in_torch("_multi_tensor_adam", "optim/adam.py"), step}) == Category::other);
    CHECK(of({to_copy, step}) == Category::inputs);
    CHECK(of({torch_frame("at::cuda::setWorkspaceForHandle(cublasContext*)"), nn_module_call_frame,
              step}) == Category::workspaces);
    CHECK(of({torch_frame("c10d::ProcessGroupNCCL::allreduce_impl(at::Tensor&)"), step}) ==
          Category::communication);
    CHECK(of({in_torch("FlatParamHandle._alloc_padded", "distributed/fsdp/_flat_param.py"),
              step}) == Category::communication);
    CHECK(of({in_torch("MemTracker.__torch_dispatch__", "distributed/_tools/mem_tracker.py"),
              nn_module_call_frame, step}) == Category::activations);
}

TEST_CASE("an nn.Module that is called in a way that is not known is noticed") {
    const StackFrame forward = in_torch("Linear.forward", "nn/modules/linear.py");
    const StackFrame another = in_torch("Module._call_in_another_way", "nn/modules/module.py");
    CHECK(nn_module_call({malloc_frame, forward, nn_module_call_frame, step}) ==
          NnModuleCall::known);
    CHECK(nn_module_call({malloc_frame, forward, another, step}) == NnModuleCall::unknown);
    CHECK(nn_module_call({malloc_frame, another, step}) == NnModuleCall::none);
    CHECK(nn_module_call({malloc_frame, python_frame("Model.forward", "/src/train.py"), step}) ==
          NnModuleCall::none);
    CHECK(of({forward, another, step}) == Category::other);
}

TEST_CASE("of what backward makes, gradients are what somebody else frees") {
    const std::vector<StackFrame> stack = {
        torch_frame("torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)"),
        engine};
    CHECK(of(stack, true) == Category::gradients);
    CHECK(of(stack, false) == Category::other);
}

TEST_CASE("the innermost that says what it is decides") {
    // Checkpointing repeats a forward within backward; backward runs within a step of LBFGS.
    CHECK(of({differentiable, nn_module_call_frame, in_torch("unpack_hook", "utils/checkpoint.py"),
              engine}) == Category::activations);
    CHECK(of({engine, in_torch("LBFGS.step", "optim/lbfgs.py"), step}, true) ==
          Category::gradients);
}

TEST_CASE("other programs' memory has no category") {
    StackFrame own = torch_frame("Arena::allocate(unsigned long)");
    own.module = "/src/app";
    CHECK(of({own}) == Category::other);
    CHECK(of({python_frame("_call_impl", "/src/call.py"), step}) == Category::other);
    CHECK(categorize({}, true) == Category::other);
}

TEST_CASE("only PyTorch's memory has categories, and of two levels the inner one") {
    Report report;
    Device gpu;
    gpu.index = 0;
    CHECK_FALSE(has_categories(report, gpu));
    report.modules.push_back({});
    report.modules.back().path = "/venv/torch/lib/libtorch_cuda.so";
    CHECK(has_categories(report, gpu));
    Device cache;
    cache.index = 64;
    cache.allocator = "PyTorch";
    cache.on_gpu = 0;
    report.devices = {gpu, cache};
    CHECK_FALSE(has_categories(report, gpu));
    CHECK(has_categories(report, cache));
    cache.allocator = "arena";
    CHECK_FALSE(has_categories(report, cache));
}

TEST_CASE("the forward's frames in a stack of backward do not make it an activation") {
    const StackFrame evaluate = torch_frame(
        "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)");
    for (const bool named : {true, false}) {
        const StackFrame last = named ? evaluate : torch_frame("");
        CHECK(of({last, forward_marker(), nn_module_call_frame, step}, true) ==
              Category::gradients);
        CHECK(of({last, forward_marker(), nn_module_call_frame, step}) == Category::other);
    }
}
