// libFuzzer: any bytes as an event log, through the what-if's models and the replay of the pool.
// Nothing may crash, hang or grow without bound; the models' books must balance whatever they are
// fed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "report/whatif/async_model.hpp"
#include "report/whatif/packing.hpp"
#include "report/whatif/plain_model.hpp"
#include "report/whatif/pool_model.hpp"
#include "report/whatif/pytorch_model.hpp"
#include "report/whatif/replay.hpp"
#include "report/whatif/rmm_model.hpp"
#include "report/whatif/runner.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using namespace memlab;
using namespace memlab::report::whatif;
using namespace memlab::fuzz;

namespace {

constexpr std::uint64_t device = std::uint64_t{1} << 40;

void run_through(const Program& program, std::unique_ptr<Model> model) {
    const std::uint64_t capacity = model->meter().capacity();
    const Outcome outcome = run(program, *model, [](std::size_t, const Model& now) {
        const Meter& meter = now.meter();
        require(meter.requested() <= meter.allocated() && meter.allocated() <= meter.active() &&
                meter.active() <= meter.reserved() && meter.reserved() <= meter.capacity());
    });
    require(outcome.reserved_peak <= capacity);
}

void try_out(const std::uint8_t* data, std::size_t size) {
    ProgramBuilder builder;
    const trace::LogReadResult read = trace::read_log(data, size, builder);
    const Recording recording = builder.finish(read);
    for (const Program& program : recording.programs) {
        const std::uint64_t capacity = std::min(program.device.total_bytes, device);
        run_through(program, std::make_unique<PlainModel>(capacity));
        run_through(program, std::make_unique<AsyncModel>(capacity, 0));
        run_through(program, std::make_unique<RmmModel>(capacity, RmmSettings{}));
        run_through(program, std::make_unique<PyTorchModel>(capacity, PyTorchSettings{}));
        PyTorchSettings expandable;
        expandable.expandable_segments = true;
        run_through(program, std::make_unique<PyTorchModel>(capacity, expandable));
        run_through(program, std::make_unique<PoolModel>(capacity, allocator::PoolOptions{}));
        const LowerBound bound = lower_bound(program);
        require(bound.requested <= bound.rounded);
        pack_offline(program, 100'000);
    }
    replay_records([&](trace::RecordSink& sink) { return trace::read_log(data, size, sink); },
                   [](const std::vector<trace::OptionValue>&, const trace::DeviceInfo& of, bool,
                      PoolInForce* pool, std::string*) {
                       pool->total_memory = of.total_bytes;
                       return true;
                   });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try_out(data, size);
    const auto log = as_open_log(data, size);
    try_out(log.data(), log.size());
    return 0;
}
