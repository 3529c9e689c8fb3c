#include "tests/cli/synthetic_run.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "allocator/pool.hpp"
#include "tests/support/simulated_backend.hpp"
#include "tests/unit/allocator/random.hpp"

namespace memlab::test {

namespace {

using namespace memlab::trace;
using allocator::testing::Random;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
constexpr std::uint64_t total_bytes = 141 * gib;
constexpr std::uint64_t max_held_bytes = 60 * gib;
constexpr std::uint64_t max_sites_of_a_step = 4000;
constexpr std::uint32_t ranks_of_a_host = 8;
constexpr std::uint32_t modules = 12;
constexpr std::uint32_t functions_of_a_module = 400;
/// Strings of fixed meaning; the names of Python's functions and files come behind.
enum : std::uint32_t { api_name = 1, step_name, forward_name, backward_name, end_of_step, main_py };

std::uint32_t python_function(std::uint32_t layer) {
    return main_py + 1 + layer;
}

/// Tells the log what the pool does. The tag of a call is its stack.
class LogObserver final : public allocator::PoolObserver {
  public:
    explicit LogObserver(RecordSink& log) : log_(log) {}

    void on_alloc(const allocator::BlockInfo& block, allocator::Tag tag) override {
        tell(EventType::alloc, block.address, block.requested, block.size, tag);
    }
    void on_free_requested(const allocator::BlockInfo& block, allocator::Tag tag) override {
        tell(EventType::free_requested, block.address, block.requested, block.size, tag);
    }
    void on_free_completed(const allocator::BlockInfo& block) override {
        tell(EventType::free_completed, block.address, block.requested, block.size, 0);
    }
    void on_segment_alloc(allocator::Address segment, std::uint64_t size,
                          allocator::Tag tag) override {
        tell(EventType::segment_alloc, segment, 0, size, tag);
    }
    void on_segment_free(allocator::Address segment, std::uint64_t size) override {
        tell(EventType::segment_free, segment, 0, size, 0);
    }
    void on_segment_map(allocator::Address address, std::uint64_t bytes,
                        allocator::Tag tag) override {
        tell(EventType::segment_map, address, 0, bytes, tag);
    }
    void on_segment_unmap(allocator::Address address, std::uint64_t bytes) override {
        tell(EventType::segment_unmap, address, 0, bytes, 0);
    }
    void on_alloc_retry(std::uint64_t requested, allocator::Tag tag) override {
        tell(EventType::alloc_retry, 0, requested, 0, tag);
    }
    void on_reclaim(std::uint64_t requested, allocator::Tag tag) override {
        tell(EventType::reclaim, 0, requested, 0, tag);
    }
    void on_empty_cache() override { tell(EventType::empty_cache, 0, 0, 0, 0); }
    void on_tick(std::uint64_t now_ns) override { tell(EventType::tick, 0, now_ns, 0, 0); }
    void on_sync() override { tell(EventType::sync, 0, 0, 0, 0); }

    void scope(EventType type, std::uint32_t name) {
        Event event = blank(type);
        event.name = type == EventType::scope_end ? 0 : name;
        count(event);
    }
    void mark() {
        Event event = blank(EventType::mark);
        event.name = end_of_step;
        count(event);
    }

    std::uint64_t events() const { return events_; }
    std::uint64_t time_ns() const { return time_ns_; }
    void pass(std::uint64_t nanoseconds) { time_ns_ += nanoseconds; }

  private:
    Event blank(EventType type) {
        Event event;
        event.type = type;
        event.thread = 4711;
        event.time_ns = time_ns_;
        return event;
    }
    void tell(EventType type, std::uint64_t address, std::uint64_t requested, std::uint64_t size,
              allocator::Tag tag) {
        Event event = blank(type);
        event.origin = Origin::pool;
        event.context = 1;
        event.address = address;
        event.requested = requested;
        event.size = size;
        if (tag != 0) {
            event.api = api_name;
            event.stack = static_cast<std::uint32_t>(tag);
        }
        count(event);
    }
    void count(const Event& event) {
        log_.on(event);
        ++events_;
    }

    RecordSink& log_;
    std::uint64_t events_ = 0;
    std::uint64_t time_ns_ = 1'000'000;
};

class Run {
  public:
    Run(const SyntheticRun& run, RecordSink& log)
        : run_(run), log_(log), random_(run.seed), backend_(total_bytes), observer_(log) {}

    void write() {
        definitions();
        if (run_.rank) {
            random_ = Random(run_.seed + std::uint64_t{1 + *run_.rank} * 0x9e3779b97f4a7c15ULL);
        }
        allocator::Pool pool(allocator::PoolOptions{}, backend_, &observer_);
        pool_ = &pool;
        const std::uint32_t weights = std::min<std::uint32_t>(run_.sites, 2000);
        for (std::uint32_t i = 0; i < weights && observer_.events() < run_.events; ++i) {
            allocate(i % run_.sites);
        }
        while (observer_.events() < run_.events) {
            step();
        }
        log_.on(DeviceSample{observer_.time_ns(), 0, max_held_bytes, total_bytes});
        log_.on(End{observer_.time_ns() + 1'000'000, EndKind::exit, 0, ""});
    }

  private:
    void definitions() {
        ProcessInfo process;
        process.pid = run_.pid;
        process.parent_pid = 1;
        process.executable = "/opt/app/train";
        process.arguments = {"./train", "--synthetic", "--seed", std::to_string(run_.seed)};
        process.host = "node1";
        process.memlab_version = "0.1.0";
        process.start_wall_ns = 1'772'374'427'000'000'000;
        std::string gpu = "GPU-0";
        if (run_.rank) {
            process.host = "node" + std::to_string(1 + *run_.rank / ranks_of_a_host);
            process.ranks = {{"RANK", std::to_string(*run_.rank)},
                             {"LOCAL_RANK", std::to_string(*run_.rank % ranks_of_a_host)},
                             {"WORLD_SIZE", std::to_string(run_.world_size)}};
            gpu = "GPU-" + std::to_string(*run_.rank);
        }
        log_.on(process);
        log_.on(StringDef{api_name, "cuMemAlloc_v2"});
        log_.on(StringDef{step_name, "step"});
        log_.on(StringDef{forward_name, "forward"});
        log_.on(StringDef{backward_name, "backward"});
        log_.on(StringDef{end_of_step, "end of step"});
        log_.on(StringDef{main_py, "/opt/app/model.py"});
        const std::uint32_t layers = std::min<std::uint32_t>(run_.sites, 500);
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            log_.on(
                StringDef{python_function(layer), "Layer" + std::to_string(layer) + ".forward"});
        }
        log_.on(DeviceInfo{0, "A simulated GPU", gpu, total_bytes, 13000});
        log_.on(ContextInfo{1, 0, true});
        for (std::uint32_t module = 1; module <= modules; ++module) {
            const std::uint64_t start = 0x7f1000000000 + module * 0x10000000ULL;
            log_.on(ModuleDef{module, "/opt/app/libpart" + std::to_string(module) + ".so", "",
                              start, start, start + 0x10000000});
        }
        for (std::uint32_t site = 0; site < run_.sites; ++site) {
            log_.on(
                PythonFrameDef{site + 1, python_function(site % layers), main_py, 10 + site, 10});
            sizes_.push_back(std::uint64_t{1} << (9 + random_.below(15)));
            log_.on(StackDef{site + 1, false, frames(site)});
        }
    }

    /// Native frames, the line of Python, and what called it.
    std::vector<Frame> frames(std::uint32_t site) {
        std::vector<Frame> result;
        const std::uint64_t depth = 3 + random_.below(8);
        for (std::uint64_t i = 0; i < depth; ++i) {
            const auto module = static_cast<std::uint32_t>(1 + random_.below(modules));
            result.push_back({module, 0x1000 + 0x40 * random_.below(functions_of_a_module), 0});
        }
        result.push_back({0, 0, site + 1});
        result.push_back({1, 0x900, 0});
        result.push_back({1, 0x800, 0});
        return result;
    }

    allocator::Address allocate(std::uint32_t site) {
        observer_.pass(1500 + random_.below(3000));
        const std::uint64_t size = sizes_[site] - random_.below(sizes_[site] / 4 + 1);
        const auto result = pool_->allocate(size, site + 1);
        return result.status.ok() ? result.block.address : 0;
    }

    void release(allocator::Address address, std::uint32_t site) {
        observer_.pass(300 + random_.below(500));
        if (address != 0) {
            pool_->free(address, site + 1);
        }
    }

    /// Work that uses what was allocated; the device is some way behind.
    void submit() {
        const auto last = backend_.submit();
        if (last > 40) {
            backend_.advance_to(std::max(backend_.completed(), last - random_.below(40)));
        }
    }

    void step() {
        struct Held {
            allocator::Address address;
            std::uint32_t site;
        };
        observer_.scope(EventType::scope_begin, step_name);
        observer_.scope(EventType::scope_begin, forward_name);
        std::vector<Held> held;
        std::uint64_t held_bytes = 0;
        const std::uint64_t visits = std::min<std::uint64_t>(run_.sites, max_sites_of_a_step);
        for (std::uint64_t i = 0; i < visits && held_bytes < max_held_bytes; ++i) {
            const std::uint32_t site = next_site_;
            next_site_ = (next_site_ + 1) % run_.sites;
            const allocator::Address address = allocate(site);
            submit();
            if (random_.one_in(3)) {
                release(address, site);
            } else {
                held.push_back({address, site});
                held_bytes += sizes_[site];
            }
        }
        observer_.scope(EventType::scope_end, 0);
        observer_.scope(EventType::scope_begin, backward_name);
        for (auto block = held.rbegin(); block != held.rend(); ++block) {
            submit();
            release(block->address, block->site);
        }
        observer_.scope(EventType::scope_end, 0);
        sizes_.front() = 4096;
        allocate(0);
        observer_.scope(EventType::scope_end, 0);
        observer_.mark();
    }

    const SyntheticRun run_;
    RecordSink& log_;
    Random random_;
    allocator::SimulatedBackend backend_;
    LogObserver observer_;
    allocator::Pool* pool_ = nullptr;
    std::vector<std::uint64_t> sizes_;  ///< of the sites
    std::uint32_t next_site_ = 0;
};

}  // namespace

void write_synthetic_run(const SyntheticRun& run, RecordSink& log) {
    Run(run, log).write();
}

}  // namespace memlab::test
