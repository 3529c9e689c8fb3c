// The table of allocator frames, and what --skip names: which functions they are, and which they
// only look like.
#include "report/symbols/allocator_frames.hpp"
#include "report/symbols/frame_choice.hpp"
#include "report/text/names.hpp"
#include "tests/catch.hpp"
#include "tests/unit/report/stack_frames.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

StackFrame native(const char* function, const char* file = "", int line = 0,
                  const char* module = "/app/train") {
    return frame_in(module, function, file, line);
}

bool in_table(const char* function) {
    return is_allocator_frame(native(function));
}

/// The choice with these patterns of --skip.
std::size_t chosen(std::vector<StackFrame> stack, const std::vector<std::string>& patterns,
                   bool defaults = true) {
    FrameSkips skips;
    for (const std::string& pattern : patterns) {
        CHECK(skips.add(pattern).empty());
    }
    if (!defaults) {
        skips.leave_defaults_out();
    }
    for (StackFrame& frame : stack) {
        classify(frame, skips);
    }
    return choose_frame(stack);
}

std::vector<StackFrame> of_wrapper() {
    return {
        native("cuMemAlloc_v2", "", 0, "/usr/lib/libcuda.so.1"),
        native("DeviceBuffer<float>::DeviceBuffer(unsigned long)", "/src/buffer.hpp", 12),
        native("void Trainer::step<float>(DeviceBuffer<float>&)", "/src/trainer.cpp", 40),
        native("main", "/src/main.cpp", 5),
        native("__libc_start_main", "", 0, "/lib/x86_64-linux-gnu/libc.so.6"),
    };
}

}  // namespace

TEST_CASE("allocators and containers, however long their names are") {
    CHECK(in_table("std::vector<int, Pool<int, (Kind)1> >::vector(unsigned long)"));
    CHECK(in_table("float* std::allocator_traits<Pool<float> >::allocate(Pool<float>&, int)"));
    CHECK(in_table("std::enable_if<true, std::unique_ptr<Net> >::type std::make_unique<Net>()"));
    CHECK(in_table("std::__1::function<void (int)>::operator()(int) const"));
    CHECK(in_table("decltype(auto) std::invoke<main::{lambda()#1}>(main::{lambda()#1}&&)"));
    CHECK(in_table("__gnu_cxx::new_allocator<int>::allocate(unsigned long, void const*)"));
    CHECK(in_table("thrust::detail::vector_base<int>::allocate_and_copy()"));
    CHECK(in_table("thrust::THRUST_200500_900_NS::device_vector<int>::device_vector(int)"));
    CHECK(in_table("cuda::std::__4::vector<int>::vector()"));
    CHECK(in_table("rmm::device_uvector<int>::device_uvector(unsigned long)"));
    CHECK(in_table("Kokkos::View<double**, Kokkos::CudaSpace>::View(char const*)"));
    CHECK(in_table("Kokkos::Impl::SharedAllocationRecord<Kokkos::CudaSpace>::allocate()"));
    CHECK(in_table("af::array::array(long long)"));
    CHECK(in_table("c10::cuda::CUDACachingAllocator::Native::allocate(unsigned long)"));
    CHECK(in_table("operator new(unsigned long)"));
    CHECK(in_table("operator new[](unsigned long)"));
}

TEST_CASE("names that only look like it are the program's own") {
    CHECK_FALSE(in_table(""));
    CHECK_FALSE(in_table("mystd::vector<int>::vector()"));
    CHECK_FALSE(in_table("std2::make()"));
    CHECK_FALSE(in_table("thrusters::fire(int)"));
    CHECK_FALSE(in_table("rmm_user::run()"));
    CHECK_FALSE(in_table("app::std::run()"));
    CHECK_FALSE(in_table("cuda::matmul(float*)"));
    CHECK_FALSE(in_table("cuda::buffered_reader::read()"));
    CHECK_FALSE(in_table("cudf::detail::gather(cudf::table_view const&)"));
    CHECK_FALSE(in_table("std::vector<int> load(std::vector<int> const&)"));
    CHECK_FALSE(in_table("thrust::device_vector<float> Net::weights<thrust::tag>()"));
    CHECK_FALSE(in_table("decltype(std::declval<int>()) twice<std::vector<int> >(int)"));
    CHECK_FALSE(
        in_table("run(std::function<void ()>)::{lambda(std::vector<int>&)#1}::operator()"
                 "(std::vector<int>&) const"));
    CHECK_FALSE(in_table("at::empty(c10::ArrayRef<long>)"));  // not in PyTorch's libraries
}

TEST_CASE("an allocate is plumbing in a header, not in a source file") {
    const char* function = "mr::pool::do_allocate(unsigned long)";
    CHECK(is_allocator_frame(native(function, "/src/pool.hpp", 3)));
    CHECK(is_allocator_frame(native("Managed::operator new(unsigned long)", "/src/m.cuh", 3)));
    CHECK_FALSE(is_allocator_frame(native(function, "/src/pool.cpp", 3)));
    CHECK_FALSE(is_allocator_frame(native("allocate(unsigned long)", "/src/pool.hpp", 3)));
    CHECK_FALSE(is_allocator_frame(native("Pool::reallocate(unsigned long)", "/src/pool.hpp", 3)));
}

TEST_CASE("Python's plumbing by its files") {
    const char* module = "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py";
    CHECK(is_allocator_frame(python_frame("Module._call_impl", module)));
    CHECK(is_allocator_frame(python_frame("Module._wrapped_call_impl", module)));
    CHECK_FALSE(is_allocator_frame(python_frame("Module.to", module)));
    CHECK_FALSE(is_allocator_frame(python_frame("Module._call_impl", "/src/module.py")));
    CHECK(is_allocator_frame(python_frame("OpOverload.__call__", "/venv/torch/_ops.py")));
    CHECK(is_allocator_frame(python_frame("jit", "/venv/jax/_src/pjit.py")));
    CHECK(is_allocator_frame(python_frame("f", "/venv/numba/cuda/cudadrv/driver.py")));
    CHECK_FALSE(is_allocator_frame(python_frame("std", "/src/train.py")));
    CHECK(is_allocator_frame(native("", "", 0, "/venv/cupy/cuda/memory.cpython-312.so")));
    CHECK(is_allocator_frame(native("_PyEval_EvalFrameDefault", "", 0, "/usr/bin/python3.12")));
}

TEST_CASE("the line that calls a container stands for the site") {
    std::vector<StackFrame> stack = {
        native("cudaMalloc"),
        native("rmm::device_buffer::allocate_async(unsigned long)", "/rmm/device_buffer.hpp", 9),
        native("std::vector<int>::vector()", "/opt/include/vector", 7),
        native("cudf::detail::gather()", "/cudf/gather.cu", 50),
        native("main", "/src/main.cpp", 3),
    };
    CHECK(choose_frame(stack) == 3);
    CHECK(chosen(stack, {}, false) == 1);
    // Without lines too.
    for (StackFrame& frame : stack) {
        frame.file.clear();
        frame.line = 0;
    }
    CHECK(choose_frame(stack) == 3);
    // Nothing else: the container itself.
    stack.resize(3);
    CHECK(choose_frame(stack) == 1);
}

TEST_CASE("a header of an installed package is a library's, in whichever binary it is") {
    const std::vector<StackFrame> stack = {
        native("at::mm(at::Tensor)", "/venv/lib/python3.12/site-packages/torch/include/a.h", 3),
        native("step()", "/src/ext.cpp", 8),
    };
    CHECK(choose_frame(stack) == 1);
}

TEST_CASE("--skip passes over a wrapper, not over those that are given one") {
    CHECK(chosen(of_wrapper(), {}) == 1);
    CHECK(chosen(of_wrapper(), {"DeviceBuffer"}) == 2);
    CHECK(chosen(of_wrapper(), {"func=DeviceBuffer::*"}) == 2);
    CHECK(chosen(of_wrapper(), {"DeviceBuffer<float>"}) == 3);  // of the declaration
    CHECK(chosen(of_wrapper(), {"file=buffer.hpp"}) == 2);
    CHECK(chosen(of_wrapper(), {"buffer.hpp", "Trainer"}) == 3);
    CHECK(chosen(of_wrapper(), {"func=buffer.hpp"}) == 1);
    CHECK(chosen(of_wrapper(), {"no such name"}) == 1);
}

TEST_CASE("--skip goes to a caller, never to what was called") {
    const std::vector<StackFrame> stack = {native("allocate(unsigned long)"),
                                           native("Trainer::step()", "/src/train.cpp", 12),
                                           native("run(int)")};
    CHECK(chosen(stack, {}) == 1);
    CHECK(chosen(stack, {"file=train.cpp"}) == 2);
    CHECK(chosen(stack, {"file=train.cpp", "func=run"}) == 1);
}

TEST_CASE("where everything is skipped the choice is what it would be without") {
    CHECK(chosen(of_wrapper(), {"*"}) == 1);
    CHECK(chosen(of_wrapper(), {"module=/app/train"}) == 1);
    CHECK(chosen({native("cuMemAlloc_v2", "", 0, "/usr/lib/libcuda.so.1")}, {"*"}) == 0);
    CHECK(chosen({}, {"*"}) == no_frame);
}

TEST_CASE("what is no pattern of --skip is refused in one line") {
    FrameSkips skips;
    CHECK(skips.add("") == "takes a text to look for, not nothing");
    CHECK(skips.add("file=") == "takes a text to look for, not file=");
    CHECK(skips.add("kind=device") ==
          "takes func=, file= or module=, not kind=; for a name with = in it write "
          "func=kind=device");
    CHECK_FALSE(skips.skips(native("run()")));
}

TEST_CASE("bare names: what a function is, not what it is made for") {
    CHECK(bare_function_name("void Pool<float>::run<int>(Buffer&)") == "Pool::run");
    CHECK(bare_function_name("f(B&)::{lambda(B&)#1}::operator()(B&) const") ==
          "f::{lambda}::operator()");
    CHECK(bare_function_name("bool operator< <int>(A<int> const&, A<int>)") == "operator<");
    CHECK(bare_function_name("(anonymous namespace)::run<3>()") == "(anonymous namespace)::run");
    CHECK(bare_function_name("plain") == "plain");
    CHECK(bare_function_name("a<b") == "a<b");
}
