// Writes an event log of random records, so that exports can be judged on logs that nobody planned.
//
//   random_log plausible|wild SEED RECORDS PATH
//   random_log layers LOG PATH
//   random_log names WHAT COUNT SIZE PATH
//
// "plausible" records are a program's, with an accident now and then; "wild" ones are anything that
// a log can carry: see tests/unit/trace/recording.hpp. "layers": those of another log, as if calls
// of a network's nn.Modules had made its allocations. "names": COUNT allocations, each with a name
// of its own of SIZE bytes for its WHAT: mark, scope, label, function, module, nn_module. The same
// arguments give the same log.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>

#include "tests/unit/trace/recording.hpp"
#include "trace/log_writer.hpp"
#include "trace/reading/log_reader.hpp"

namespace {

using namespace memlab::trace;

/// Copies records, and gives allocations other nn.Modules.
class Layers final : public GenericSink<Layers> {
  public:
    explicit Layers(LogWriter& to) : to_(to) {}

    /// Before the end of the log: names may come late, and these have strings of their own.
    void name() {
        if (named_ || !defined_) {
            return;
        }
        named_ = true;
        for (std::uint32_t i = 0; i < modules.size(); ++i) {
            if (modules[i].class_name != nullptr) {
                const std::uint32_t name = modules[i].name[0] == '\0' ? 0 : define(modules[i].name);
                to_.on(NnModuleName{i + 1, name, define(modules[i].class_name)});
            }
        }
    }

  private:
    friend GenericSink<Layers>;

    struct Module {
        const char* name;
        const char* class_name;  ///< null: it has no name
    };
    // Of several classes by one name, called through wrappers, within one that is never called.
    static constexpr std::array modules = std::to_array<Module>({
        {"", "Net"},
        {"encoder", "Encoder"},
        {"encoder.layers.0", "Layer"},
        {"encoder.layers.0.attention", "Attention"},
        {"encoder.layers.0.mlp", "MLP"},
        {"encoder.layers.1", "Layer"},
        {"encoder.layers.1._checkpoint_wrapped_module.attention", "Attention"},
        {"encoder.layers.1._checkpoint_wrapped_module.mlp", "MLP"},
        {"head", "Linear"},
        {"head", "Quantized"},
        {"module._orig_mod.decoder.blocks.12", "Block"},
        {"", nullptr},
        {"", nullptr},
    });

    std::uint32_t define(const char* text) {
        to_.on(StringDef{++strings_, text});
        return strings_;
    }

    template <typename Record>
    void take(const Record& record) {
        to_.on(record);
    }
    void take(const NnModuleStackDef& /*record*/) {}
    void take(const NnModuleName& /*record*/) {}
    void take(const StringDef& record) {
        strings_ = record.id;
        to_.on(record);
    }
    void take(const Event& record) {
        if (!defined_) {
            defined_ = true;
            // Called by the outermost one, and by the one before.
            for (std::uint32_t i = 0; i < modules.size(); ++i) {
                to_.on(NnModuleStackDef{2 * i + 1, i == 0 ? 0U : 1U, i + 1});
                to_.on(NnModuleStackDef{2 * i + 2, 2 * i + 1, i + 1});
            }
        }
        Event event = record;
        if (event.type == EventType::alloc) {
            constexpr std::uint64_t stacks = 2 * modules.size();
            event.nn_modules = static_cast<std::uint32_t>(
                (event.requested / 4 + std::uint64_t{3} * event.stack) % (stacks + 1));
        }
        to_.on(event);
    }
    void take(const End& record) {
        name();
        to_.on(record);
    }

    LogWriter& to_;
    bool defined_ = false;
    bool named_ = false;
    std::uint32_t strings_ = 0;
};

/// What no packer makes smaller.
std::string random_name(memlab::test::Random& random, std::size_t size) {
    std::string name(size, ' ');
    for (char& c : name) {
        c = static_cast<char>('a' + random.below(26));
    }
    return name;
}

void write_names(const std::string& what, std::uint32_t count, std::size_t size, RecordSink& to) {
    memlab::test::Random random(1);
    ProcessInfo process;
    process.pid = 4711;
    process.executable = "/usr/bin/names";
    to.on(process);
    DeviceInfo device;
    device.name = "GPU of a test";
    device.total_bytes = std::uint64_t{1} << 40;
    to.on(device);
    ContextInfo context;
    context.id = 1;
    to.on(context);
    to.on(StringDef{1, "cuMemAlloc_v2"});
    to.on(ModuleDef{1, "/lib/names.so", "", 0, 1ULL << 40, 1ULL << 41});
    std::uint32_t strings = 1;
    for (std::uint32_t i = 1; i <= count; ++i) {
        std::string name = random_name(random, size);
        if (what == "nn_module") {
            std::replace(name.begin(), name.end(), 'e', '.');
        }
        if (what != "module") {
            to.on(StringDef{++strings, name});
        }
        Event event;
        event.thread = 4711;
        event.context = 1;
        event.time_ns = std::uint64_t{1000} * i;
        event.name = strings;
        if (what == "mark" || what == "scope") {
            event.type = what == "mark" ? EventType::mark : EventType::scope_begin;
            to.on(event);
        }
        Event alloc = event;
        alloc.type = EventType::alloc;
        alloc.name = 0;
        alloc.api = 1;
        alloc.address = (1ULL << 30) + std::uint64_t{4096} * i;
        alloc.requested = alloc.size = 512 + random.below(1000);
        alloc.stack = i;
        Frame frame{1, (1ULL << 40) + i, 0};
        if (what == "function") {
            to.on(PythonFrameDef{i, strings, strings, i, 1});
            frame = {0, 0, i};
        } else if (what == "module") {
            frame.module = i + 1;
            to.on(ModuleDef{i + 1, "/lib/" + name, "", 0, (1ULL << 42) + 4096ULL * i,
                            (1ULL << 42) + 4096ULL * (i + 1)});
        } else if (what == "nn_module") {
            to.on(NnModuleStackDef{i, 0, i});
            to.on(NnModuleName{i, strings, strings});
            alloc.nn_modules = i;
        }
        to.on(StackDef{i, false, {frame}});
        to.on(alloc);
        if (what == "label") {
            Event label = event;
            label.type = EventType::label;
            label.address = alloc.address;
            to.on(label);
        }
        if (what == "scope") {
            event.type = EventType::scope_end;
            event.name = 0;
            to.on(event);
        }
    }
    to.on(End{std::uint64_t{1000} * (count + 1), EndKind::exit, 0, ""});
}

}  // namespace

int main(int argc, char** argv) {
    using namespace memlab::test;
    const bool layers = argc == 4 && std::strcmp(argv[1], "layers") == 0;
    const bool names = argc == 6 && std::strcmp(argv[1], "names") == 0;
    if (argc != 5 && !layers && !names) {
        std::cerr << "usage: random_log plausible|wild SEED RECORDS PATH\n"
                     "       random_log layers LOG PATH\n"
                     "       random_log names WHAT COUNT SIZE PATH\n";
        return 2;
    }
    auto created = LogWriter::create(argv[argc - 1], 0);
    if (!created.writer) {
        std::cerr << "random_log: " << created.error << "\n";
        return 1;
    }
    if (layers) {
        Layers copy(*created.writer);
        read_log(argv[2], copy);
        copy.name();
    } else if (names) {
        write_names(argv[2], static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10)),
                    std::strtoull(argv[4], nullptr, 10), *created.writer);
    } else {
        const std::uint64_t seed = std::strtoull(argv[2], nullptr, 10);
        const std::size_t count = std::strtoull(argv[3], nullptr, 10);
        const bool ends = seed % 2 == 0;
        feed(std::strcmp(argv[1], "wild") == 0 ? WildRecords::make(seed, count, ends)
                                               : PlausibleRecords::make(seed, count, ends),
             *created.writer);
    }
    created.writer->close();
    return 0;
}
