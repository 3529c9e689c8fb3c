// Writes small event logs whose every figure is known, so that the tools can be tested as a user
// meets them, without a GPU and without the preload library. Deterministic: the same scenario gives
// the same bytes, except the stacks, which name this very program.
//
//   memlab-synth SCENARIO PATH       write one log
//   memlab-synth --events N --sites S --seed K -o FILE
//                                    a training run as large as wanted (synthetic_run.hpp)
//   memlab-synth --ranks N --events N --sites S --seed K -o FOLDER
//                                    the logs of its ranks, in a folder that exists
//   memlab-synth --run SCENARIO END  as a recorded program would under memlab-run: announces and
//                                    writes its log in MEMLAB_OUTPUT's folder, then ends by END
//                                    (an exit code, or "kill", "term" or "wait")
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>

#include "tests/cli/ring_log.hpp"
#include "tests/cli/synthetic_run.hpp"
#include "trace/log_writer.hpp"

namespace {

using namespace memlab::trace;

constexpr std::uint64_t mib = 1ULL << 20;
constexpr std::uint64_t millisecond = 1'000'000;
constexpr std::uint64_t base = 0x7f0000000000;
/// A tensor of 1000 x 1000 floats in the pool's 512-byte steps: 3.81 MiB.
constexpr std::uint64_t tensor = 4'000'256;

[[gnu::noinline]] std::uint64_t allocate_tensor() {
    return reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
}

// The line of this call is what the reports must name; test_summary.py looks for the comment.
[[gnu::noinline]] std::uint64_t load_batch() {
    const volatile std::uint64_t address = allocate_tensor();  // line: load_batch
    return address;
}

[[gnu::noinline]] std::uint64_t forward_pass() {
    const volatile std::uint64_t address = allocate_tensor();  // line: forward_pass
    return address;
}

std::string self_path() {
    std::array<char, PATH_MAX> path{};
    return realpath("/proc/self/exe", path.data()) == nullptr ? std::string() : path.data();
}

std::string self_build_id(std::uint64_t* bias) {
    struct Found {
        std::string id;
        std::uint64_t bias = 0;
    } found;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* out) {
            auto& result = *static_cast<Found*>(out);
            result.bias = info->dlpi_addr;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                if (info->dlpi_phdr[i].p_type != PT_NOTE) {
                    continue;
                }
                const auto* at =
                    reinterpret_cast<const char*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
                const char* end = at + info->dlpi_phdr[i].p_memsz;
                while (at + sizeof(ElfW(Nhdr)) <= end) {
                    ElfW(Nhdr) note;
                    std::memcpy(&note, at, sizeof note);
                    const char* name = at + sizeof note;
                    const char* description = name + ((note.n_namesz + 3) & ~3U);
                    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
                        std::memcmp(name, "GNU", 4) == 0) {
                        for (unsigned k = 0; k < note.n_descsz; ++k) {
                            std::array<char, 3> hex{};
                            std::snprintf(hex.data(), hex.size(), "%02x",
                                          static_cast<unsigned char>(description[k]));
                            result.id += hex.data();
                        }
                    }
                    at = description + ((note.n_descsz + 3) & ~3U);
                }
            }
            return 1;
        },
        &found);
    *bias = found.bias;
    return found.id;
}

/// One scenario being written.
class Scenario {
  public:
    Scenario(LogWriter& log, const std::string& name, std::uint32_t pid)
        : log_(log), name_(name), pid_(pid) {}

    bool write() {
        if (name_ == "empty") {
            definitions();
            end();
        } else if (name_ == "cache") {
            definitions();
            cache();
            end();
        } else if (name_ == "leak" || name_ == "stale") {
            definitions();
            leak();
            end();
        } else if (name_ == "oom") {
            definitions();
            oom();
            end();
        } else if (name_ == "cut") {
            definitions();
            leak();
        } else if (name_ == "stopped") {
            definitions();
            stopped();
        } else if (name_ == "trouble") {
            definitions();
            trouble();
        } else if (name_ == "hostile") {
            definitions();
            hostile();
            end();
        } else if (name_ == "steps") {
            definitions();
            steps();
            end();
        } else if (name_ == "kernels") {
            definitions();
            kernels();
            end();
        } else if (name_ == "ledger") {
            definitions();
            ledger();
            end();
        } else if (name_ == "two_gpus") {
            definitions();
            two_gpus();
            end();
        } else {
            return false;
        }
        return true;
    }

  private:
    void definitions() {
        ProcessInfo process;
        process.pid = pid_;
        process.parent_pid = 1;
        process.executable = name_ == "trouble"   ? "/opt/app\x1b[31m/train"
                             : name_ == "hostile" ? "/opt/\xff\"\n<app>"
                                                  : "/opt/app/train";
        process.arguments = {"./train", "--epochs", "3", "two words"};
        process.host = "node1";
        process.memlab_version = "0.1.0";
        process.start_wall_ns = 1'772'374'427'000'000'000;
        process.started_late = name_ == "trouble";
        process.ranks = {{"RANK", "3"}};
        log_.on(process);
        log_.on(OptionValue{"MEMLAB_POOL", "on"});
        log_.on(StringDef{1, "cuMemAlloc_v2"});
        log_.on(StringDef{2, "cuMemHostAlloc"});
        log_.on(StringDef{3, "x = tensor"});
        log_.on(StringDef{4, "del x"});
        log_.on(StringDef{5, "empty_cache()"});
        log_.on(StringDef{6, "a kernel's own allocations are not seen"});
        log_.on(StringDef{7, "start"});
        if (name_ == "cache") {
            mark(0, 7);  // before any device is known
        }
        const std::uint32_t devices = name_ == "two_gpus" ? 2 : 1;
        for (std::uint32_t i = 0; i < devices; ++i) {
            log_.on(DeviceInfo{i, "NVIDIA H100 80GB HBM3", "GPU-" + std::to_string(i), 80'000 * mib,
                               13000});
            log_.on(ContextInfo{i + 1, i, true});
        }
        std::uint64_t bias = 0;
        std::string id = self_build_id(&bias);
        if (name_ == "stale") {
            id = "0123456789abcdef";
        }
        log_.on(ModuleDef{1, self_path(), id, bias, bias, bias + 0x10000000});
        log_.on(ModuleDef{2, "/nowhere/libcudart.so.13", "", 0, 0x1000, 0x2000});
        log_.on(StackDef{1, false, {{2, 0x10}, {1, load_batch() - bias}}});
        log_.on(StackDef{2, true, {{2, 0x20}, {1, forward_pass() - bias}}});
    }

    Event event(EventType type, std::uint64_t time, std::uint64_t address, std::uint64_t requested,
                std::uint64_t size) {
        Event result;
        result.type = type;
        result.origin = Origin::pool;
        result.context = 1;
        result.thread = 7;
        result.time_ns = time * millisecond;
        result.address = address;
        result.requested = requested;
        result.size = size;
        return result;
    }

    void alloc(std::uint64_t time, std::uint64_t address, std::uint64_t requested,
               std::uint64_t size, std::uint32_t stack, std::uint32_t device = 0) {
        Event result = event(EventType::alloc, time, address, requested, size);
        result.api = 1;
        result.stack = stack;
        result.device = device;
        result.context = device + 1;
        log_.on(result);
    }

    void segment(EventType type, std::uint64_t time, std::uint64_t address, std::uint64_t size,
                 std::uint32_t device = 0) {
        Event result = event(type, time, address, 0, size);
        result.api = 1;
        result.device = device;
        result.context = device + 1;
        log_.on(result);
    }

    void release(std::uint64_t time, std::uint64_t address, std::uint64_t requested,
                 std::uint64_t size) {
        log_.on(event(EventType::free_requested, time, address, requested, size));
        log_.on(event(EventType::free_completed, time, address, requested, size));
    }

    void mark(std::uint64_t time, std::uint32_t name) {
        Event result;
        result.type = EventType::mark;
        result.time_ns = time * millisecond;
        result.thread = 7;
        result.name = name;
        log_.on(result);
    }

    /// The seed's four lines: a tensor of 3.81 MiB from a segment of 20 MiB.
    void cache() {
        segment(EventType::segment_alloc, 100, base, 20 * mib);
        alloc(100, base, 4'000'000, tensor, 1);
        mark(200, 3);
        release(300, base, 4'000'000, tensor);
        mark(400, 4);
        segment(EventType::segment_free, 500, base, 20 * mib);
        mark(600, 5);
    }

    void leak() {
        segment(EventType::segment_alloc, 10, base, 20 * mib);
        alloc(10, base, 4'000'000, tensor, 1);
        alloc(20, base + 4 * mib, 8 * mib, 8 * mib, 2);
        alloc(30, base + 12 * mib, 4 * mib, 4 * mib, 2);
        log_.on(DeviceSample{35 * millisecond, 0, 520 * mib, 80'000 * mib});
        release(40, base + 4 * mib, 8 * mib, 8 * mib);
        Event pinned;
        pinned.kind = MemoryKind::pinned;
        pinned.time_ns = 50 * millisecond;
        pinned.api = 2;
        pinned.stack = 1;
        pinned.context = 1;
        pinned.address = base + 100 * mib;
        pinned.requested = mib;
        pinned.size = mib;
        log_.on(pinned);
    }

    void oom() {
        segment(EventType::segment_alloc, 10, base, 20 * mib);
        alloc(10, base, 4'000'000, tensor, 1);
        log_.on(StringDef{8, "loader \x1b[31m"});
        log_.on(ThreadInfo{7, 8});
        OomEvent failure;
        failure.time_ns = 20 * millisecond;
        failure.context = 1;
        failure.thread = 7;
        failure.api = 1;
        failure.stack = 2;
        failure.requested = 60'000 * mib;
        failure.device_free = 50'000 * mib;
        failure.device_total = 80'000 * mib;
        failure.largest_free_block = 16 * mib;
        failure.error = 2;
        log_.on(failure);
    }

    /// Work on two streams; two kernels of the first run side by side.
    void kernels() {
        log_.on(StringDef{8, "_Z4gemmIfEvPKT_"});
        cache();
        const auto work = [&](WorkKind kind, std::uint32_t stream, std::uint64_t start,
                              std::uint64_t end) {
            const bool kernel = kind == WorkKind::kernel;
            log_.on(Work{kind, kernel ? 8U : 0U, 0, stream, 40 + stream, start * millisecond,
                         end * millisecond, kernel ? 0 : mib});
        };
        work(WorkKind::kernel, 7, 110, 150);
        work(WorkKind::kernel, 7, 140, 160);
        work(WorkKind::copy, 13, 120, 130);
        work(WorkKind::kernel, 7, 160, 170);
    }

    void trouble() {
        leak();
        log_.on(Missed{60 * millisecond, 6, 2, 3 * mib});
        log_.on(event(EventType::free_requested, 70, base + 900 * mib, 1, 512));
    }

    /// The log ends at its limit, and lacks 12 events.
    void stopped() {
        leak();
        while (log_.events_dropped() < 12) {
            mark(60, 3);
        }
    }

    void scope(EventType type, std::uint64_t time, std::uint32_t name) {
        Event result = event(type, time, 0, 0, 0);
        result.origin = Origin::driver;
        result.name = name;
        log_.on(result);
    }

    /// Four steps of a training: what forward makes lives until the end of its step, what backward
    /// makes for itself alone; frees complete 5 ms later.
    void steps() {
        log_.on(StringDef{8, "train"});
        log_.on(StringDef{9, "step"});
        log_.on(StringDef{10, "forward"});
        log_.on(StringDef{11, "backward"});
        segment(EventType::segment_alloc, 10, base, 40 * mib);
        log_.on(DeviceSample{10 * millisecond, 0, 60 * mib, 80'000 * mib});
        scope(EventType::scope_begin, 20, 8);
        alloc(20, base, 4'000'000, tensor, 1);
        for (std::uint64_t step = 0; step < 4; ++step) {
            const std::uint64_t at = 100 + 200 * step;
            const std::uint64_t size = (8 + 2 * step) * mib;
            scope(EventType::scope_begin, at, 9);
            scope(EventType::scope_begin, at + 10, 10);
            alloc(at + 20, base + 4 * mib, size, size, 2);
            scope(EventType::scope_end, at + 90, 0);
            scope(EventType::scope_begin, at + 100, 11);
            alloc(at + 110, base + 20 * mib, 12 * mib, 12 * mib, 2);
            log_.on(
                event(EventType::free_requested, at + 150, base + 20 * mib, 12 * mib, 12 * mib));
            log_.on(
                event(EventType::free_completed, at + 155, base + 20 * mib, 12 * mib, 12 * mib));
            scope(EventType::scope_end, at + 160, 0);
            release(at + 170, base + 4 * mib, size, size);
            scope(EventType::scope_end, at + 180, 0);
            mark(at + 180, 3);
        }
        scope(EventType::scope_end, 900, 0);
    }

    /// What the driver takes beside a tensor in a segment of 20 MiB; another process has 1 GiB.
    void ledger() {
        const std::uint64_t others = 1024 * mib;
        log_.on(StringDef{8, "cuDevicePrimaryCtxRetain"});
        log_.on(StringDef{9, "cuModuleLoadData"});
        log_.on(StringDef{10, "cuGraphInstantiateWithFlags"});
        log_.on(StringDef{11, "/opt/app/kernels.cubin"});
        std::uint64_t used = others;
        const auto entry = [&](std::uint64_t time, LedgerKind kind, std::uint32_t api,
                               std::uint64_t bytes, std::uint32_t object) {
            log_.on(LedgerEntry{.time_ns = time * millisecond,
                                .device = 0,
                                .kind = kind,
                                .api = api,
                                .object = object,
                                .context = 0x10,
                                .before = used,
                                .after = used + bytes});
            used += bytes;
        };
        entry(5, LedgerKind::context, 8, 400 * mib, 0);
        entry(8, LedgerKind::module, 9, 24 * mib, 11);
        segment(EventType::segment_alloc, 10, base, 20 * mib);
        alloc(10, base, 4'000'000, tensor, 0);
        used += 20 * mib;
        entry(12, LedgerKind::graph, 10, 6 * mib, 0);
        used += 2 * mib;  // nobody knows why
        log_.on(DeviceSample{20 * millisecond, 0, used, 80'000 * mib});
        log_.on(Witness{20 * millisecond, 0, WitnessState::seen, used - others, others, 1});
        release(30, base, 4'000'000, tensor);
    }

    /// Names that are no UTF-8, or would be something else to whoever reads them.
    void hostile() {
        log_.on(StringDef{8, "cu\xff\xfeMem;Alloc \"x\""});
        log_.on(StringDef{9, "mark\x1b[31m\n<&]]>\xc0\xaf"});
        log_.on(StringDef{10, std::string("\0scope\\", 7)});
        log_.on(ModuleDef{3, "/lib/\xed\xa0\x80\x9b'.so", "", 0, 0x3000, 0x4000});
        log_.on(StackDef{3, false, {{3, 0x30}, {3, 0x40}}});
        segment(EventType::segment_alloc, 10, base, 20 * mib);
        Event named = event(EventType::scope_begin, 10, 0, 0, 0);
        named.name = 10;
        log_.on(named);
        Event strange = event(EventType::alloc, 20, base, 4'000'000, tensor);
        strange.api = 8;
        strange.stack = 3;
        log_.on(strange);
        mark(30, 9);
        named = event(EventType::scope_end, 40, 0, 0, 0);
        log_.on(named);
    }

    void two_gpus() {
        for (std::uint32_t device = 0; device < 2; ++device) {
            const std::uint64_t address = base + device * 1000 * mib;
            segment(EventType::segment_alloc, 10 + device, address, 20 * mib, device);
            alloc(20 + device, address, 4'000'000, tensor, device + 1, device);
        }
    }

    void end() { log_.on(End{1000 * millisecond, EndKind::exit, 0, ""}); }

    LogWriter& log_;
    std::string name_;
    std::uint32_t pid_;
};

bool write_log(const std::string& scenario, const std::string& path, std::uint32_t pid) {
    auto created = LogWriter::create(path, scenario == "stopped" ? std::uint64_t{64} << 10 : 0);
    if (!created.writer) {
        std::cerr << "memlab-synth: " << created.error << "\n";
        return false;
    }
    const bool known = Scenario(*created.writer, scenario, pid).write();
    created.writer->close();
    if (!known) {
        std::cerr << "memlab-synth: no scenario " << scenario << "\n";
    }
    return known;
}

int run_as_program(const std::string& scenario, const std::string& ending) {
    const char* output = std::getenv("MEMLAB_OUTPUT");
    const char* manifest = std::getenv("MEMLAB_RUN_MANIFEST");
    if (output == nullptr || manifest == nullptr) {
        std::cerr << "memlab-synth: run it under memlab-run\n";
        return 2;
    }
    const std::string pid = std::to_string(getpid());
    const std::string folder = std::string(output).substr(0, std::string(output).rfind('/') + 1);
    const std::string stem = folder + "memlab.train." + pid;
    const std::string line = pid + "\t" + stem + ".memlog\t" + stem + ".json\n";
    const int fd = open(manifest, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        std::perror("memlab-synth: manifest");
        return 2;
    }
    close(fd);
    if (!write_log(scenario, stem + ".memlog", static_cast<std::uint32_t>(getpid()))) {
        return 2;
    }
    if (ending == "kill") {
        raise(SIGKILL);
    } else if (ending == "term") {
        raise(SIGTERM);
    } else if (ending == "wait" || ending == "record") {
        // "record": the log is still open, as while a program runs.
        if (ending == "record" && open((stem + ".memlog").c_str(), O_RDONLY | O_CLOEXEC) < 0) {
            std::perror("memlab-synth: its log");
            return 2;
        }
        std::cout << "ready" << std::endl;
        while (true) {
            pause();
        }
    }
    return std::atoi(ending.c_str());
}

/// -1 where it is none.
long long whole_number(const char* text) {
    char* end = nullptr;
    const long long value = std::strtoll(text, &end, 10);
    return end == text || *end != '\0' ? -1 : value;
}

/// `limit`: of the log's size; 0: none.
bool write_run(const memlab::test::SyntheticRun& run, const std::string& path,
               std::uint64_t limit = 0) {
    auto created = LogWriter::create(path, limit);
    if (!created.writer) {
        std::cerr << "memlab-synth: " << created.error << "\n";
        return false;
    }
    if (limit != 0) {
        memlab::test::RingLog ring(*created.writer);
        memlab::test::write_synthetic_run(run, ring);
    } else {
        memlab::test::write_synthetic_run(run, *created.writer);
    }
    const std::string stopped = created.writer->stopped_because();
    created.writer->close();
    if (!stopped.empty()) {
        std::cerr << "memlab-synth: " << path << ": " << stopped << "\n";
    }
    return stopped.empty();
}

bool write_ranks(memlab::test::SyntheticRun run, const std::string& folder) {
    for (std::uint32_t rank = 0; rank < run.world_size; ++rank) {
        run.rank = rank;
        run.pid = 4711 + rank;
        if (!write_run(run, folder + "/memlab.train." + std::to_string(run.pid) + ".memlog")) {
            return false;
        }
    }
    return true;
}

/// The arguments are pairs of an option and its value.
int synthesize(int argc, char** argv) {
    memlab::test::SyntheticRun run;
    std::string path;
    std::uint64_t limit = 0;
    bool good = argc % 2 == 1;
    for (int i = 1; good && i + 1 < argc; i += 2) {
        const std::string_view option = argv[i];
        const long long value = whole_number(argv[i + 1]);
        if (option == "-o") {
            path = argv[i + 1];
        } else if (option == "--events" && value >= 0) {
            run.events = static_cast<std::uint64_t>(value);
        } else if (option == "--sites" && value >= 1 && value <= 10'000'000) {
            run.sites = static_cast<std::uint32_t>(value);
        } else if (option == "--ranks" && value >= 1 && value <= 1'000'000) {
            run.world_size = static_cast<std::uint32_t>(value);
        } else if (option == "--limit" && value >= 0) {
            limit = static_cast<std::uint64_t>(value);
        } else if (option == "--seed" && value >= 0) {
            run.seed = static_cast<std::uint64_t>(value);
        } else {
            good = false;
        }
    }
    if (!good || path.empty()) {
        std::cerr << "usage: memlab-synth [--events N] [--sites S] [--seed K] "
                     "[--limit BYTES] [--ranks N] -o FILE\n";
        return 2;
    }
    return (run.world_size != 0 ? write_ranks(run, path) : write_run(run, path, limit)) ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && argv[1][0] == '-' && std::strcmp(argv[1], "--run") != 0) {
        return synthesize(argc, argv);
    }
    if (argc == 4 && std::strcmp(argv[1], "--run") == 0) {
        return run_as_program(argv[2], argv[3]);
    }
    if (argc != 3) {
        std::cerr << "usage: memlab-synth SCENARIO PATH | memlab-synth --run SCENARIO END | "
                     "memlab-synth [--events N] [--sites S] [--seed K] -o FILE\n";
        return 2;
    }
    return write_log(argv[1], argv[2], 4711) ? 0 : 1;
}
