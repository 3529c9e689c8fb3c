#include "tests/simcuda/options.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/errors.hpp"

namespace memlab::simcuda {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& value, const char* expected) {
    std::fprintf(stderr, "simcuda: %s=%s is not understood: expected %s\n", name, value.c_str(),
                 expected);
    std::fflush(stderr);
    _Exit(2);
}

bool parse_number(const std::string& text, uint64_t& number, std::string& rest) {
    if (text.empty() || text[0] < '0' || text[0] > '9') {
        return false;
    }
    char* end = nullptr;
    errno = 0;
    number = std::strtoull(text.c_str(), &end, 10);
    rest = end;
    return errno == 0;
}

uint64_t count_option(const char* name, uint64_t fallback, const char* expected) {
    const char* value = std::getenv(name);
    if (value == nullptr) {
        return fallback;
    }
    uint64_t number = 0;
    std::string rest;
    if (!parse_number(value, number, rest) || !rest.empty()) {
        refuse(name, value, expected);
    }
    return number;
}

uint64_t parse_bytes(const char* name, const std::string& value) {
    uint64_t number = 0;
    std::string unit;
    int shift = -1;
    if (parse_number(value, number, unit)) {
        shift = unit.empty() || unit == "B" ? 0
                : unit == "KiB"             ? 10
                : unit == "MiB"             ? 20
                : unit == "GiB"             ? 30
                                            : -1;
    }
    if (shift < 0 || number > (UINT64_MAX >> shift)) {
        refuse(name, value, "a number of bytes, optionally with KiB, MiB or GiB");
    }
    return number << shift;
}

uint64_t bytes_option(const char* name, uint64_t fallback) {
    const char* value = std::getenv(name);
    return value == nullptr ? fallback : parse_bytes(name, value);
}

// Calls use(item) for each of a variable's items, which commas separate.
template <typename Use>
void for_items(const char* name, const Use& use) {
    const char* value = std::getenv(name);
    std::string text = value == nullptr ? "" : value;
    while (!text.empty()) {
        const size_t comma = text.find(',');
        use(text.substr(0, comma));
        text = comma == std::string::npos ? "" : text.substr(comma + 1);
    }
}

void takes_option(uint64_t (&takes)[std::size(taken_names)]) {
    constexpr const char* name = "SIMCUDA_TAKES";
    for_items(name, [&](const std::string& item) {
        const size_t colon = item.find(':');
        const auto* const known =
            std::find(std::begin(taken_names), std::end(taken_names), item.substr(0, colon));
        if (colon == std::string::npos || known == std::end(taken_names)) {
            refuse(name, item,
                   "module, kernel, launch, graph, upload, stream, event or limit, and :bytes");
        }
        takes[known - std::begin(taken_names)] = parse_bytes(name, item.substr(colon + 1));
    });
}

bool is_function(const std::string& name) {
    for (int id = 0; id < static_cast<int>(FunctionId::count); ++id) {
        const FunctionInfo& info = function_info(static_cast<FunctionId>(id));
        if (name == info.symbol || name == info.base) {
            return true;
        }
    }
    return false;
}

std::vector<InjectedFault> faults_option() {
    constexpr const char* name = "SIMCUDA_FAIL";
    constexpr const char* expected = "function:nth:error, as in cuMemAlloc:3:2, more after commas";
    std::vector<InjectedFault> faults;
    for_items(name, [&](const std::string& item) {
        const size_t first = item.find(':');
        const size_t second = first == std::string::npos ? first : item.find(':', first + 1);
        InjectedFault fault{};
        std::string rest;
        if (second == std::string::npos || !is_function(item.substr(0, first)) ||
            !parse_number(item.substr(first + 1, second - first - 1), fault.nth, rest) ||
            !rest.empty() || fault.nth == 0 || !parse_error(item.substr(second + 1), fault.error)) {
            refuse(name, item, expected);
        }
        fault.function = item.substr(0, first);
        faults.push_back(fault);
    });
    return faults;
}

Options read_options() {
    Options read;
    const uint64_t devices = count_option("SIMCUDA_DEVICES", 1, "a number of devices up to 64");
    if (devices > 64) {
        refuse("SIMCUDA_DEVICES", std::to_string(devices), "a number of devices up to 64");
    }
    read.devices = static_cast<int>(devices);
    read.memory = bytes_option("SIMCUDA_MEMORY", read.memory);
    read.context_memory = bytes_option("SIMCUDA_CONTEXT_MEMORY", 0);
    read.withheld = bytes_option("SIMCUDA_WITHHELD", 0);
    read.queue = count_option("SIMCUDA_QUEUE", 0, "how many pieces of work a stream takes");
    takes_option(read.takes);
    read.oom_at =
        count_option("SIMCUDA_OOM_AT", 0, "the number of an allocation call, 1 the first");
    read.oom_above = bytes_option("SIMCUDA_OOM_ABOVE", UINT64_MAX);
    read.faults = faults_option();
    const uint64_t version =
        count_option("SIMCUDA_DRIVER_VERSION", CUDA_VERSION, "a version such as 12040");
    if (version < 11000 || version > 99990 || version % 10 != 0) {
        refuse("SIMCUDA_DRIVER_VERSION", std::to_string(version),
               "1000 * major + 10 * minor, from 11000");
    }
    read.driver_version = static_cast<int>(version);
    read.concurrent_managed = count_option("SIMCUDA_CONCURRENT_MANAGED", 1, "0 or 1") != 0;
    read.ipc_enables_peers = count_option("SIMCUDA_IPC_ENABLES_PEERS", 0, "0 or 1") != 0;
    read.checkpoint_ms = count_option("SIMCUDA_CHECKPOINT_MS", 0, "a number of milliseconds");
    const uint64_t first = count_option("SIMCUDA_FIRST_RESTORE", 0, "a number up to 3");
    if (first > 3) {
        refuse("SIMCUDA_FIRST_RESTORE", std::to_string(first), "a number up to 3");
    }
    read.first_restore = static_cast<FirstRestore>(first);
    if (const char* path = std::getenv("SIMCUDA_STATS")) {
        read.stats_path = path;
    }
    if (const char* path = std::getenv("SIMCUDA_SHARED")) {
        read.shared_path = path;
    }
    return read;
}

}  // namespace

Options& options() {
    static Options& once = *new Options(read_options());
    return once;
}

bool parse_error(const std::string& text, CUresult& error) {
    uint64_t number = 0;
    std::string rest;
    if (parse_number(text, number, rest) && rest.empty()) {
        error = static_cast<CUresult>(number);
        return error_name(error) != nullptr;
    }
    for (int code = 0; code <= 999; ++code) {
        const char* name = error_name(static_cast<CUresult>(code));
        if (name != nullptr && text == name) {
            error = static_cast<CUresult>(code);
            return true;
        }
    }
    return false;
}

}  // namespace memlab::simcuda
