#include "interpose/options/option_table.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>

#include "interpose/options/pytorch_conf.hpp"
#include "interpose/options/quantities.hpp"

namespace memlab::interpose {
namespace {

template <typename Value>
Value& member(Settings& settings, Value Settings::*field) {
    return settings.*field;
}
template <typename Value>
Value& member(Settings& settings, Value allocator::PoolOptions::*field) {
    return settings.pool_options.*field;
}

/// A member that has a word for each of its values.
template <auto field, const auto& words>
bool word_option(Settings& settings, std::string_view text) {
    for (const auto& [word, value] : words) {
        if (text == word) {
            member(settings, field) = value;
            return true;
        }
    }
    return false;
}

template <typename Value>
struct Word {
    std::string_view word;
    Value value;
};
constexpr Word<bool> switch_words[] = {{"1", true},    {"on", true},    {"yes", true},
                                       {"true", true}, {"0", false},    {"off", false},
                                       {"no", false},  {"false", false}};
constexpr Word<allocator::FreeSync> free_sync_words[] = {{"auto", allocator::FreeSync::automatic},
                                                         {"always", allocator::FreeSync::always},
                                                         {"never", allocator::FreeSync::never}};
constexpr Word<CuptiUse> cupti_words[] = {
    {"auto", CuptiUse::automatic}, {"on", CuptiUse::on}, {"off", CuptiUse::off}};
constexpr Word<LedgerUse> ledger_words[] = {
    {"auto", LedgerUse::automatic}, {"on", LedgerUse::on}, {"off", LedgerUse::off}};
constexpr Word<PythonFrames> python_words[] = {{"auto", PythonFrames::automatic},
                                               {"off", PythonFrames::off},
                                               {"verify", PythonFrames::verify}};
constexpr Word<bool> names_words[] = {{"auto", true}, {"off", false}};
constexpr Word<Verbosity> verbosity_words[] = {
    {"quiet", Verbosity::quiet}, {"warnings", Verbosity::warnings}, {"debug", Verbosity::debug}};

template <auto field>
constexpr auto switch_option = word_option<field, switch_words>;

/// A member that `parse(text, &member)` reads.
template <auto field, auto parse>
bool parsed_option(Settings& settings, std::string_view text) {
    return parse(text, &member(settings, field));
}

/// "off", "zero", or "0x" and one or two hexadecimal digits.
bool fill_option(Settings& settings, std::string_view text) {
    Fill fill;
    if (text == "zero") {
        fill.pooled = true;
    } else if (text.starts_with("0x") && text.size() <= 4) {
        const auto [end, error] =
            std::from_chars(text.data() + 2, text.data() + text.size(), fill.value, 16);
        if (error != std::errc() || end != text.data() + text.size()) {
            return false;
        }
        fill.pooled = fill.driver = true;
    } else if (text != "off") {
        return false;
    }
    settings.fill = fill;
    return true;
}

bool ipc_option(Settings& settings, std::string_view text) {
    if (text != "auto" && text != "plain" && text != "off") {
        return false;
    }
    settings.detect_ipc = text != "off";
    settings.share_ipc = text == "auto";
    return true;
}

bool parse_number(std::string_view text, std::uint64_t max, std::uint64_t* number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    return error == std::errc() && end == text.data() + text.size() && *number <= max;
}

/// "off", "on", or seconds.
bool yield_signals_option(Settings& settings, std::string_view text) {
    constexpr std::uint64_t usable = (std::uint64_t{1} << SIGUSR1) | (std::uint64_t{1} << SIGUSR2);
    std::uint64_t signals = 0;
    if (!parse_signals(text, &signals) || (signals & ~usable) != 0) {
        return false;
    }
    settings.yield_signals = signals;
    return true;
}

bool hold_option(Settings& settings, std::string_view text) {
    constexpr std::uint64_t usual = 600;
    constexpr std::uint64_t a_week = 7ULL * 24 * 3600;
    std::uint64_t seconds = text == "on" ? usual : 0;
    if (text != "on" && text != "off" && (!parse_number(text, a_week, &seconds) || seconds == 0)) {
        return false;
    }
    settings.hold_on_oom = seconds;
    return true;
}

template <std::uint32_t Settings::*field, std::uint32_t min, std::uint32_t max>
bool number_option(Settings& settings, std::string_view text) {
    std::uint64_t number = 0;
    if (!parse_number(text, max, &number) || number < min) {
        return false;
    }
    settings.*field = static_cast<std::uint32_t>(number);
    return true;
}

/// A field of the pool's options, given in MiB; 0 means `none`.
template <std::uint64_t allocator::PoolOptions::*field, std::uint64_t none = 0>
bool mebibytes_option(Settings& settings, std::string_view text) {
    std::uint64_t number = 0;
    if (!parse_number(text, 1ULL << 40, &number)) {
        return false;
    }
    settings.pool_options.*field = number == 0 ? none : number << 20;
    return true;
}

/// The unused remainder allowed in a large block is at least one such segment.
bool large_segment_option(Settings& settings, std::string_view text) {
    allocator::PoolOptions& pool = settings.pool_options;
    if (!mebibytes_option<&allocator::PoolOptions::medium_segment>(settings, text)) {
        return false;
    }
    pool.max_non_split_rounding = std::max(pool.max_non_split_rounding, pool.medium_segment);
    return true;
}

bool roundup_option(Settings& settings, std::string_view text) {
    return allocator::parse_roundup_divisions(text, &settings.pool_options.roundup_power2_divisions)
        .empty();
}

bool backend_option(Settings& settings, std::string_view text) {
    if (text != "auto" && text != "classic" && text != "vmm") {
        return false;
    }
    settings.choose_backend = text == "auto";
    settings.pool_options.expandable = text == "vmm";
    return true;
}

bool output_option(Settings& settings, std::string_view text) {
    if (text.empty()) {
        return false;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            continue;
        }
        ++i;
        if (i == text.size() || std::strchr("ephr%", text[i]) == nullptr) {
            return false;
        }
    }
    settings.output = text;
    return true;
}

constexpr OptionDef options[] = {
    {"MEMLAB_OUTPUT", "path pattern", "memlab.%e.%p.json",
     "Path of the report: %e is the program's name, %p its process id, %h the host, %r the rank. "
     "Missing folders are created; a path is a folder if it ends in / or is one already. The event "
     "log is written beside it, as .memlog.",
     output_option},
    {"MEMLAB_POOL", "on, off", "on",
     "Serve device allocations from memlab's pool; off only records them.",
     switch_option<&Settings::pool>},
    {"MEMLAB_FREE_SYNC", "auto, always, never", "auto",
     "When cudaFree waits for the GPU. auto: when it is busy, so that the host sees finished "
     "results, as with plain CUDA; not for callers known not to rely on that (PyTorch). always: "
     "for every caller. never: reuse stays ordered behind the work on the GPU.",
     word_option<&allocator::PoolOptions::free_sync, free_sync_words>},
    {"MEMLAB_WORK_CLOCK", "on, off", "on",
     "Count the work that the program submits to the GPU, so that a free on an idle GPU needs no "
     "driver call; off fences every free.",
     switch_option<&Settings::work_clock>},
    {"MEMLAB_ONE_STREAM", "on, off", "on",
     "While all work of the program goes to one stream, reuse memory as soon as it is freed "
     "where cudaFree does not wait, as stream-aware allocators do. Needs MEMLAB_WORK_CLOCK.",
     switch_option<&Settings::one_stream>},
    {"MEMLAB_FILL", "off, zero, 0xBYTE", "off",
     "What fresh memory contains. off: what its last owner left. zero: zeros, as plain CUDA's "
     "memory mostly does. 0xBYTE: that byte (0xff is NaN in floating point), which shows reads "
     "of memory that nobody wrote, as valgrind's --malloc-fill does; it also fills memory of "
     "cudaMalloc and cudaMallocAsync that the driver serves. Each allocation then waits for its "
     "fill, and MEMLAB_ONE_STREAM is off.",
     fill_option},
    {"MEMLAB_LIMIT", "size[,device=index or GPU-UUID], more after ;", "0",
     "Make the GPU look smaller: total and free memory are those of a GPU of this size, and "
     "every kind of device memory runs out at the limit. All memory in use counts, that of "
     "contexts, modules and other processes included. An entry without device= applies to all "
     "devices not named. 0: no limit.",
     parsed_option<&Settings::limits, parse_limits>},
    {"MEMLAB_PASSTHROUGH", "size>BYTES, size<BYTES or site=NAME, joined by |", "",
     "Allocations that plain CUDA serves instead of the pool: by size, or made from inside "
     "a library whose file name contains NAME.",
     [](Settings& settings, std::string_view text) { return settings.passthrough.parse(text); }},
    {"MEMLAB_BACKEND", "auto, classic, vmm", "auto",
     "Where the pool's memory comes from. classic: segments from cuMemAlloc. vmm: ranges that "
     "grow and shrink in place, with almost no fragmentation, mapped by the driver's virtual "
     "memory management. auto: vmm, unless the process has loaded a library known to need memory "
     "from cuMemAlloc, or an option of segments is set; then classic.",
     backend_option},
    {"MEMLAB_PACKED_SHARE", "0 to 1", "0.015",
     "With vmm: up to this share of the GPU's memory (or of MEMLAB_LIMIT) blocks are packed and "
     "share pages of 2 MiB; beyond it each block of 2 MiB and more has pages of its own, as in "
     "plain CUDA, so that all free memory can be released. 1: always pack, to reserve less.",
     parsed_option<&allocator::PoolOptions::packed_share, parse_share>},
    {"MEMLAB_TRIM_AFTER", "0, or a time: 500ms, 30s, 5min", "500ms",
     "Release cached memory to the driver when it was unused for this long (at most one and a "
     "half times as long), and at once when the program starts a child process or another "
     "process under memlab runs out of memory. 0: keep it from all of them.",
     parsed_option<&allocator::PoolOptions::trim_after_ns, parse_duration>},
    {"MEMLAB_TRIM_BACKOFF", "on, off", "off",
     "Double MEMLAB_TRIM_AFTER whenever memory is needed again within 10 seconds of its release, "
     "so that a program with long steps keeps its memory; processes without memlab then wait "
     "longer for it.",
     switch_option<&allocator::PoolOptions::trim_backoff>},
    {"MEMLAB_GC_THRESHOLD", "0 to 1", "0",
     "PyTorch's garbage_collection_threshold: above this share of the GPU's memory (or of "
     "MEMLAB_LIMIT) the pool releases unused segments before it takes new ones, oldest "
     "first. 0: never.",
     parsed_option<&allocator::PoolOptions::garbage_collection_threshold, parse_share>},
    {"MEMLAB_LARGE_SEGMENT_SIZE_MB", "MiB", "20",
     "Segments for blocks of more than 1 MiB and less than 10 MiB: an even number of MiB.",
     large_segment_option},
    {"MEMLAB_LARGE_ROUNDING_MB", "MiB", "2",
     "Segments for blocks of 10 MiB and more are multiples of this: an even number of MiB.",
     mebibytes_option<&allocator::PoolOptions::large_rounding>},
    {"MEMLAB_FRAGMENTED_ROUNDING_MB", "MiB", "16",
     "While an eighth of the memory in such segments is free in pieces that do not fit, new ones "
     "are multiples of half the power of two below their size, but at most of this, so that "
     "programs whose sizes vary can reuse them. An even number of MiB; 0: never.",
     mebibytes_option<&allocator::PoolOptions::fragmented_rounding>},
    {"MEMLAB_MAX_SPLIT_SIZE_MB", "MiB, or 0", "0",
     "PyTorch's max_split_size_mb: larger blocks are not split for smaller requests. 0: no "
     "limit.",
     mebibytes_option<&allocator::PoolOptions::max_split_size, allocator::PoolOptions::no_limit>},
    {"MEMLAB_MAX_NON_SPLIT_ROUNDING_MB", "MiB", "20",
     "PyTorch's max_non_split_rounding_mb: how much of a block above that size a request may leave "
     "unused.",
     mebibytes_option<&allocator::PoolOptions::max_non_split_rounding>},
    {"MEMLAB_ROUNDUP_POWER2_DIVISIONS", "divisions, or [MiB:divisions,...,>:divisions]", "0",
     "PyTorch's roundup_power2_divisions: sizes are rounded up to this many steps between "
     "powers of two. 0: to 512 bytes only.",
     roundup_option},
    {"MEMLAB_IPC", "auto, plain, off", "auto",
     "How memory can be shared with other processes. auto: segments of PyTorch's own cache and "
     "memory of code that refers to cudaIpcGetMemHandle come from the driver, and once UCX or "
     "MPI is loaded, or memory was exported, all new memory does, so that its handles are exact; "
     "pooled memory of the vmm backend can be opened by processes under memlab. plain: the same, "
     "except that pooled memory cannot be exported. off: pool everything, for programs that "
     "export no memory.",
     ipc_option},
    {"MEMLAB_RECORD", "on, off", "on", "Record and report; off: only the pool.",
     switch_option<&Settings::record>},
    {"MEMLAB_STACK_DEPTH", "0 to 256", "64",
     "Frames of the call stack kept with each allocation; 0 records no stacks.",
     number_option<&Settings::stack_depth, 0, 256>},
    {"MEMLAB_MAX_STACKS", "1 to 100000000", "200000",
     "How many distinct call stacks are kept whole. Further ones are counted by their innermost "
     "frames, 8 or fewer, and the report says so.",
     number_option<&Settings::max_stacks, 1, 100'000'000>},
    {"MEMLAB_PYTHON", "auto, off, verify", "auto",
     "Read Python functions and lines for call stacks, in known Python versions; verify compares "
     "them with the interpreter's own stack where that is accessible.",
     word_option<&Settings::python, python_words>},
    {"MEMLAB_NAMES", "auto, off", "auto",
     "Name PyTorch's nn.Modules, parameters, gradients and optimizer state, and record CuPy's "
     "arrays, without a call in the program: memlab's Python package is loaded when the program "
     "imports PyTorch or CuPy.",
     word_option<&Settings::names, names_words>},
    {"MEMLAB_FORWARD_LINES", "on, off", "on",
     "Record what PyTorch's backward allocates with the line of the forward that it belongs to. "
     "Costs about 1 % of a CPU-bound training step.",
     switch_option<&Settings::forward_lines>},
    {"MEMLAB_AUDIT", "on, off", "off",
     "Compare the driver's own records (by CUPTI) with the recording: the report lists memory "
     "that bypassed memlab. memlab-run --fail-on-bypass sets it.",
     switch_option<&Settings::audit>},
    {"MEMLAB_KERNELS", "on, off", "off",
     "Record kernels, copies and fills (CUPTI), so that the report says what ran at the peak.",
     switch_option<&Settings::kernels>},
    {"MEMLAB_CUPTI", "auto, on, off", "auto",
     "Whether memlab subscribes to CUPTI, which allows one subscriber. auto: if MEMLAB_AUDIT or "
     "MEMLAB_KERNELS is on and no other profiler is in the process. on: always, with an audit, "
     "and allocations have the name of the runtime's function (cudaMalloc). In both cases memlab "
     "unsubscribes when another profiler subscribes. off: never.",
     word_option<&Settings::cupti, cupti_words>},
    {"MEMLAB_LEDGER", "auto, on, off", "auto",
     "Measure what contexts, code, graphs and streams take of the GPU, by querying the driver "
     "before and after the calls that create them. auto: the first thousand calls of each kind, "
     "then for 1 % of the first ten seconds and 0.2 % of the time after; further calls are "
     "counted and estimated. on: every call. off: none.",
     word_option<&Settings::ledger, ledger_words>},
    {"MEMLAB_REPORT_ON", "signals: SIGUSR1,SIGTERM", "",
     "Signals that write a report, unless the program handles or ignores them. SIGUSR1 and "
     "SIGUSR2: a report of the current state, and the program goes on. SIGTERM, SIGINT, SIGHUP, "
     "SIGQUIT, SIGXCPU: the report, then the program ends as it would have.",
     parsed_option<&Settings::report_signals, parse_signals>},
    {"MEMLAB_LIVE", "on, off", "on",
     "Answer memlab-ctl and memlab-top while the program runs, on a Unix socket of the user's; off "
     "makes no socket and no thread.",
     switch_option<&Settings::live>},
    {"MEMLAB_HOLD_ON_OOM", "off, on, or seconds", "off",
     "A thread whose allocation fails for lack of memory waits before the program gets the error, "
     "for 600 seconds (on) or as many as given, or until memlab-ctl releases it, so that the "
     "process can be looked at while everything is still there.",
     hold_option},
    {"MEMLAB_YIELD", "on, off", "off",
     "Let the process step aside: memlab-ctl yield moves its GPU memory to the host, and restore "
     "brings it back, at the same addresses. The pool's memory is mapped then, segments of "
     "PyTorch's own cache come from the pool, and handles of cuMemCreate are memlab's, so that "
     "they "
     "can be moved.",
     switch_option<&Settings::yield>},
    {"MEMLAB_YIELD_ON", "signals: SIGUSR1,SIGUSR2", "",
     "With MEMLAB_YIELD=on: signals that make the process step aside, or come back if it is away, "
     "unless the program handles or ignores them.",
     yield_signals_option},
    {"MEMLAB_YIELD_TIMEOUT", "duration: 500ms, 2s", "2s",
     "How long the process may take to get to a moment in which no work is under way on its GPUs. "
     "Beyond it, it does not step aside and goes on.",
     parsed_option<&Settings::yield_timeout_ns, parse_duration>},
    {"MEMLAB_FILES", "on, off", "on",
     "Write the event log and the report. off: no files; the figures are available through "
     "memlab.h and memlab's Python package, which can still write a report.",
     switch_option<&Settings::files>},
    {"MEMLAB_KEEP_LOG", "on, off", "on",
     "Keep the event log after a clean end; off removes it when the report is written.",
     switch_option<&Settings::keep_log>},
    {"MEMLAB_LOG_LIMIT", "bytes, or 0", "1GiB",
     "Maximum size of the event log. Beyond it the log keeps its start and its newest part, and "
     "all totals stay exact (below 2 MiB it stops). 0: no limit.",
     parsed_option<&Settings::log_limit, parse_bytes>},
    {"MEMLAB_ARGUMENTS", "on, off", "on",
     "Store the command lines of the program and of its parent processes in log, report and run. "
     "off, for command lines with secrets: only the programs' names.",
     switch_option<&Settings::arguments>},
    {"MEMLAB_VERBOSITY", "quiet, warnings, debug", "warnings",
     "Messages on stderr: none, problems only, or details of what memlab does.",
     word_option<&Settings::verbosity, verbosity_words>},
    {"MEMLAB_DISABLE", "on, off", "off", "Load the library but do nothing.",
     switch_option<&Settings::disabled>},
    {"MEMLAB_RUN_MANIFEST", "path", "",
     "Set by memlab-run for its children: each process appends its output files. Not to be "
     "set by hand.",
     [](Settings& settings, std::string_view text) {
         settings.run_manifest = text;
         return true;
     }},
};

const char* find_value(const char* const* environment, const char* name) {
    const std::size_t length = std::strlen(name);
    for (const char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
        if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
            return *entry + length + 1;
        }
    }
    return nullptr;
}

bool is_known(std::string_view name) {
    for (const OptionDef& option : options) {
        if (name == option.name) {
            return true;
        }
    }
    return false;
}

/// memlab's options for PyTorch's allocator settings; empty unless PyTorch's own cache is off.
std::vector<std::pair<std::string, std::string>> replaced_pytorch_options(
    const char* const* environment) {
    if (find_value(environment, "PYTORCH_NO_CUDA_MEMORY_CACHING") == nullptr) {
        return {};
    }
    const char* conf = find_value(environment, "PYTORCH_ALLOC_CONF");
    if (conf == nullptr) {
        conf = find_value(environment, "PYTORCH_CUDA_ALLOC_CONF");
    }
    return conf == nullptr ? std::vector<std::pair<std::string, std::string>>()
                           : parse_pytorch_conf(conf);
}

/// Applies an option. If the text is invalid, or inconsistent with the pool's other options,
/// nothing changes and *why states the reason.
bool apply(const OptionDef& option, Settings& settings, std::string_view text, std::string* why) {
    Settings changed = settings;
    if (!option.parse(changed, text)) {
        *why = std::string("is not understood (takes ") + option.values + ")";
        return false;
    }
    if (const std::string problem = allocator::problem_with(changed.pool_options);
        !problem.empty()) {
        *why = "cannot be: " + problem;
        return false;
    }
    settings = std::move(changed);
    return true;
}

}  // namespace

std::span<const OptionDef> option_table() {
    return options;
}

LoadedSettings load_settings(const char* const* environment) {
    LoadedSettings loaded;
    loaded.settings.pytorch_caches =
        find_value(environment, "PYTORCH_NO_CUDA_MEMORY_CACHING") == nullptr;
    const auto pytorch_options = replaced_pytorch_options(environment);
    for (const OptionDef& option : options) {
        option.parse(loaded.settings, option.default_value);
    }
    for (const OptionDef& option : options) {
        std::string text = option.default_value;
        const auto use = [&](const std::string& variable, const std::string& value) {
            std::string why;
            if (apply(option, loaded.settings, value, &why)) {
                text = value;
            } else {
                std::string& problem = loaded.problems.emplace_back(variable);
                problem.append("=").append(value).append(" ").append(why);
                loaded.invalid.push_back(problem);
                problem.append(text.empty() ? "; ignored" : "; using ").append(text);
            }
        };
        // PyTorch's allocator settings first; memlab's own variables override them.
        for (const auto& [name, value] : pytorch_options) {
            if (name == option.name) {
                use(name + " (from PyTorch's allocator settings)", value);
            }
        }
        if (const char* value = find_value(environment, option.name)) {
            use(option.name, value);
        }
        loaded.values.emplace_back(option.name, std::move(text));
    }
    for (const char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
        const char* equals = std::strchr(*entry, '=');
        if (equals == nullptr || std::strncmp(*entry, "MEMLAB_", 7) != 0) {
            continue;
        }
        const std::string_view name(*entry, static_cast<std::size_t>(equals - *entry));
        if (!is_known(name)) {
            loaded.problems.push_back(std::string(name) +
                                      " is not an option; memlab-run --help-options lists them");
        }
    }
    return loaded;
}

}  // namespace memlab::interpose
