// What memlab relies on in PyTorch's libraries: the functions through which it sees blocks and
// backward graphs, by the names that they export. Each is a door that a release may move: what it
// is for is then left out, in the same words in the report and by memlab-run --doctor, and
// everything else goes on. `tools/dev frameworks` holds this table against PyTorch's own files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace memlab::interpose {

/// What is read through a door. Blocks and failures come by calls from libc10_cuda.so to libc10.so,
/// which memlab interposes; of a backward graph libtorch_cpu.so has all. Calls of nn.Module are
/// known by the names of Python functions, when a recording is read (report/symbols/category).
enum class PytorchFeature : std::uint8_t { tensors, out_of_memory, forward_lines, nn_module_calls };

/// "tensors", "out-of-memory failures", "forward lines", "calls of nn.Module".
const char* pytorch_feature_name(PytorchFeature feature);

/// What is said where nothing can be checked, or what was found is not as expected.
inline constexpr const char* pytorch_layout_unknown = "layout unknown";

/// "PyTorch 2.15: forward lines not read: layout unknown". `version`: empty where it is not known.
std::string pytorch_not_read(std::string_view version, PytorchFeature feature,
                             std::string_view why);

/// The version of the PyTorch that has this library, "2.11.0": of the file version.py of its
/// package, else of the library's own name (libtorch_cpu.so.2.6); empty: not known. Reads one small
/// file. May throw std::bad_alloc; thread-safe.
std::string pytorch_version_of(const std::string& library);

/// The text behind `__version__ = ` in a version.py, without what follows a plus sign.
std::string parse_pytorch_version(std::string_view text);

/// A function of PyTorch's that memlab calls, or that is called instead of it.
struct PytorchDoor {
    PytorchFeature feature;
    const char* library;  ///< which exports it
    const char* caller;   ///< which must call it through the loader; null: memlab calls it
    const char* symbol;
    const char* older_symbol;  ///< of before 2.3; null: there is none
    const char* name;          ///< for people
};

inline constexpr const char* pytorch_memory_usage =
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
inline constexpr const char* pytorch_signed_memory_usage =
    "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE";
inline constexpr const char* pytorch_out_of_memory =
    "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
inline constexpr const char* pytorch_signed_out_of_memory =
    "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE";
inline constexpr const char* pytorch_set_gradient_edge =
    "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE";
inline constexpr const char* pytorch_peek = "_ZN2at15sequence_number4peekEv";
inline constexpr const char* pytorch_current_node = "_ZN5torch8autograd16get_current_nodeEv";
inline constexpr const char* pytorch_evaluate_function =
    "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEE"
    "PNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE";

inline constexpr std::array<PytorchDoor, 6> pytorch_doors{{
    {PytorchFeature::tensors, "libc10.so", "libc10_cuda.so", pytorch_memory_usage,
     pytorch_signed_memory_usage, "c10::reportMemoryUsageToProfiler"},
    {PytorchFeature::out_of_memory, "libc10.so", "libc10_cuda.so", pytorch_out_of_memory,
     pytorch_signed_out_of_memory, "c10::reportOutOfMemoryToProfiler"},
    {PytorchFeature::forward_lines, "libtorch_cpu.so", "libtorch_cpu.so", pytorch_set_gradient_edge,
     nullptr, "torch::autograd::impl::set_gradient_edge"},
    {PytorchFeature::forward_lines, "libtorch_cpu.so", nullptr, pytorch_peek, nullptr,
     "at::sequence_number::peek"},
    {PytorchFeature::forward_lines, "libtorch_cpu.so", nullptr, pytorch_current_node, nullptr,
     "torch::autograd::get_current_node"},
    {PytorchFeature::forward_lines, "libtorch_cpu.so", nullptr, pytorch_evaluate_function, nullptr,
     "torch::autograd::Engine::evaluate_function"},
}};

}  // namespace memlab::interpose
