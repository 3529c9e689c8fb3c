// Writes an event log of random records, so that exports can be judged on logs that nobody planned.
//
//   random_log plausible|wild SEED RECORDS PATH
//   random_log layers LOG PATH
//
// "plausible" records are a program's, with an accident now and then; "wild" ones are anything that
// a log can carry: see tests/unit/trace/recording.hpp. "layers": those of another log, as if calls
// of a network's nn.Modules had made its allocations. The same arguments give the same log.
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

}  // namespace

int main(int argc, char** argv) {
    using namespace memlab::test;
    const bool layers = argc == 4 && std::strcmp(argv[1], "layers") == 0;
    if (argc != 5 && !layers) {
        std::cerr << "usage: random_log plausible|wild SEED RECORDS PATH\n"
                     "       random_log layers LOG PATH\n";
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
