// An OOM's explanation: who refused and the verdict follow from the figures, one case each, it
// advises nothing, and no figures make it wrong or endless.
#include "model/oom_explanation.hpp"

#include <algorithm>
#include <limits>
#include <random>

#include "interpose/options/option_table.hpp"
#include "model/size_text.hpp"
#include "tests/catch.hpp"

using namespace memlab;
using model::OomFigures;
using trace::MemoryKind;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;

/// 80 GiB, of which memlab's pool holds 40, all allocated by two sites, and others 1.
OomFigures plain_figures(std::uint64_t requested) {
    OomFigures figures;
    trace::OomTotals& oom = figures.oom;
    oom.event.requested = requested;
    oom.event.device_total = 80 * gib;
    oom.event.device_free = 39 * gib;
    oom.pool = {.reserved = 40 * gib, .active = 40 * gib, .allocated = 40 * gib};
    oom.current = {40 * gib, 40 * gib, 40 * gib, 40 * gib};
    oom.kinds[0] = 40 * gib;
    oom.holders.bytes = 40 * gib;
    oom.holders.sites = {{.site = 0, .count = 10, .bytes = 30 * gib},
                         {.site = 1, .count = 5, .bytes = 10 * gib}};
    oom.allocations = {100, 50};
    figures.caches = {nullptr, nullptr};
    return figures;
}

std::string text_of(const OomFigures& figures) {
    std::string text;
    for (const std::string& sentence : model::explain_oom(figures)) {
        CHECK(sentence.back() == '.');
        text += sentence + "\n";
    }
    return text;
}

/// Names no option that does not exist, and advises nothing.
bool names_options(const std::string& text) {
    const std::string prefix = "MEMLAB_";
    for (std::size_t at = text.find(prefix); at != std::string::npos;
         at = text.find(prefix, at + 1)) {
        const std::size_t end = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", at);
        const std::string name = text.substr(at, end - at);
        const auto options = interpose::option_table();
        if (std::none_of(options.begin(), options.end(),
                         [&](const interpose::OptionDef& each) { return each.name == name; })) {
            return false;
        }
    }
    return true;
}

bool says(const OomFigures& figures, const std::string& what) {
    const std::string text = text_of(figures);
    CHECK(names_options(text));
    INFO(text);
    INFO(what);
    return text.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("sizes in words") {
    CHECK(model::size_text(0) == "0 B");
    CHECK(model::size_text(1023) == "1023 B");
    CHECK(model::size_text(1024) == "1.00 KiB");
    CHECK(model::size_text(1024 + 5) == "1.00 KiB");  // 1.00488
    CHECK(model::size_text(1024 + 6) == "1.01 KiB");  // 1.00586
    CHECK(model::size_text(1152) == "1.12 KiB");      // 1.125: to even
    CHECK(model::size_text(1408) == "1.38 KiB");      // 1.375: to even
    CHECK(model::size_text(mib - 1) == "1.00 MiB");
    CHECK(model::size_text(mib - 6) == "1023.99 KiB");
    CHECK(model::size_text(20 * mib) == "20.00 MiB");
    CHECK(model::size_text(gib * 3 / 2) == "1.50 GiB");
    CHECK(model::size_text(std::numeric_limits<std::uint64_t>::max()) == "16777216.00 TiB");
    CHECK(model::count_text(1, "time") == "1 time");
    CHECK(model::count_text(1234567, "time") == "1,234,567 times");
    CHECK(model::count_text(1, "process") == "1 process");
    CHECK(model::count_text(2, "process") == "2 processes");
}

TEST_CASE("a shortage names what is missing and what this program holds") {
    const OomFigures figures = plain_figures(40 * gib);
    CHECK(says(figures, "The device has 80.00 GiB, 39.00 GiB of it free."));
    CHECK(says(figures, "memlab's pool holds 40.00 GiB: 40.00 GiB allocated."));
    CHECK(says(figures,
               "1.00 GiB are in use by this process's contexts and code and the driver's own "
               "pools, or by other processes."));
    CHECK(says(figures, "The driver refused it."));
    CHECK(says(figures, "It is short by 1.00 GiB, fragmentation aside."));
    CHECK(model::refused_by(figures) == "driver");
}

TEST_CASE("a request larger than the device") {
    OomFigures figures = plain_figures(81 * gib);
    CHECK(says(figures, "The request is larger than the whole device."));
    figures = plain_figures(30 * gib);
    figures.oom.event.limit = 24 * gib;
    CHECK(says(figures, "The device has 24.00 GiB by MEMLAB_LIMIT (80.00 GiB without)"));
    CHECK(says(figures, "larger than the limit; without the limit it would have fit."));
    CHECK(says(figures, "MEMLAB_LIMIT refused it, not the driver."));
    CHECK(model::refused_by(figures) == "memlab_limit");
}

TEST_CASE("a limit that is in the way is told from a device that is full") {
    OomFigures figures = plain_figures(20 * gib);
    figures.oom.event.limit = 60 * gib;  // 41 used, 19 left
    CHECK(says(figures, "60.00 GiB by MEMLAB_LIMIT (80.00 GiB without), 19.00 GiB of it free."));
    CHECK(says(figures, "short by 1.00 GiB, fragmentation aside; without the limit it would have"));
    figures.oom.event.requested = 45 * gib;
    CHECK_FALSE(says(figures, "would have fit"));
}

TEST_CASE("fragmentation says in what the memory lies") {
    OomFigures figures = plain_figures(2 * gib);
    trace::OomTotals& oom = figures.oom;
    oom.event.device_free = gib;
    oom.event.largest_free_block = 900 * mib;
    oom.pool = {.reserved = 78 * gib,
                .active = 74 * gib,
                .allocated = 74 * gib,
                .largest_free = 900 * mib,
                .large_free = 4 * gib};
    oom.current[3] = 78 * gib;
    CHECK(says(figures,
               "enough free memory in total (5.00 GiB), but fragmented: the largest free block "
               "of the pool had 900.00 MiB."));
    CHECK_FALSE(says(figures, "MEMLAB_"));
    // Memory that the pool cannot serve has no use for the pool's pieces.
    oom.event.kind = MemoryKind::array;
    CHECK(says(figures, "It is short by 1.00 GiB"));
    CHECK(says(figures, "but only cudaMalloc's memory comes from there."));
}

TEST_CASE("a cache that would not have sufficed was kept whole") {
    OomFigures figures = plain_figures(70 * gib);
    figures.oom.pool = {.reserved = 40 * gib, .active = 30 * gib, .allocated = 30 * gib};
    CHECK(says(figures, "10.00 GiB reserved but unallocated, too little for the request"));
    figures.oom.event.requested = 45 * gib;
    CHECK(says(figures, "10.00 GiB reserved but unallocated, in segments that are partly in use"));
    figures = plain_figures(70 * gib);  // less than a segment
    figures.oom.pool.allocated = figures.oom.pool.active = 40 * gib - mib;
    CHECK(says(figures, "1.00 MiB reserved but unallocated, in segments that are partly in use"));
}

TEST_CASE("other processes are told by NVML's figures alone") {
    OomFigures figures = plain_figures(40 * gib);
    figures.oom.event.time_ns = 1000;
    figures.oom.event.device_free = 19 * gib;  // 21 beside the program's
    CHECK(says(figures, "21.00 GiB are in use by this process's contexts"));
    figures.oom.others = {.known = true, .time_ns = 1001, .bytes = 20 * gib, .count = 2};
    CHECK(says(figures,
               "Other processes hold 20.00 GiB of it (2 processes, by NVML, asked after the "
               "failure); 1.00 GiB are in use by this process's contexts and code and the "
               "driver's own pools."));
    figures.oom.others = {.known = true, .time_ns = 999, .bytes = 40 * gib, .count = 1};
    CHECK(says(figures,
               "Other processes hold 21.00 GiB of it (1 process, by NVML, asked before the "
               "failure)."));
    figures.oom.others = {.known = true, .time_ns = 999};
    CHECK_FALSE(says(figures, "ther processes"));
}

TEST_CASE("an allocator's own limit is told from the driver's refusal") {
    OomFigures figures = plain_figures(60 * mib);
    figures.allocator = trace::DeviceInfo::pytorch;
    figures.by_own_limit = true;
    figures.oom.event.kind = MemoryKind::suballocation;
    figures.oom.pool = {.reserved = 2 * gib, .allocated = gib, .largest_free = 20 * mib};
    CHECK(says(figures,
               "PyTorch refused it by a limit of its own "
               "(torch.cuda.set_per_process_memory_fraction): no call of the driver failed, and "
               "39.00 GiB were free."));
    CHECK(says(figures,
               "With the 60.00 MiB it would have reserved up to 2.06 GiB; the largest free block "
               "of PyTorch's cache had 20.00 MiB."));
    CHECK_FALSE(says(figures, "The driver refused it"));
    CHECK_FALSE(says(figures, "contiguous range"));
    CHECK(model::refused_by(figures) == "allocator");
}

namespace {

/// A GPU and PyTorch's cache on it; `driver_fails`: the cache's own request of the driver failed.
model::OomFigures pytorch_failure(bool driver_fails, bool served_after) {
    trace::Aggregator aggregator;
    aggregator.on(trace::DeviceInfo{.index = 0, .total_bytes = gib});
    const std::uint32_t cache = trace::DeviceInfo::suballocator_index(0, 0);
    aggregator.on(trace::DeviceInfo{
        .index = cache, .total_bytes = gib, .allocator = trace::DeviceInfo::pytorch, .gpu = 0});
    if (driver_fails) {
        aggregator.on(trace::OomEvent{.time_ns = 10,
                                      .thread = 7,
                                      .requested = 20 * mib,
                                      .device_free = mib,
                                      .device_total = gib,
                                      .error = 2});
    }
    if (served_after) {
        trace::Event event;
        event.time_ns = 11;
        event.thread = 7;
        event.address = gib;
        event.requested = event.size = mib;
        aggregator.on(event);
    }
    aggregator.on(trace::OomEvent{.time_ns = 12,
                                  .device = cache,
                                  .thread = 7,
                                  .kind = MemoryKind::suballocation,
                                  .requested = 10 * mib,
                                  .device_free = 900 * mib,
                                  .device_total = gib,
                                  .error = 2});
    return model::oom_figures(aggregator, aggregator.ooms().back());
}

}  // namespace

TEST_CASE("whether a call of the driver failed is in the recording") {
    CHECK(pytorch_failure(false, false).by_own_limit);
    CHECK_FALSE(pytorch_failure(true, false).by_own_limit);
    // The driver's refusal was another request's: it was served at the second try.
    CHECK(pytorch_failure(true, true).by_own_limit);
}

TEST_CASE("NVML's answer is attached to the failure that came before it") {
    trace::Aggregator aggregator;
    aggregator.on(trace::DeviceInfo{.index = 0, .total_bytes = gib});
    const auto witness = [&](std::uint64_t time_ns, std::uint64_t others) {
        aggregator.on(trace::Witness{.time_ns = time_ns,
                                     .state = trace::WitnessState::seen,
                                     .others = others,
                                     .processes = 1});
    };
    const auto fail = [&](std::uint64_t time_ns) {
        aggregator.on(
            trace::OomEvent{.time_ns = time_ns, .requested = gib, .device_total = gib, .error = 2});
    };
    constexpr std::uint64_t second = 1'000'000'000;
    witness(second, 1);
    fail(2 * second);
    CHECK(aggregator.ooms()[0].others.bytes == 1);  // until NVML says more
    witness(3 * second, 2);
    CHECK(aggregator.ooms()[0].others.bytes == 2);
    CHECK(aggregator.ooms()[0].others.time_ns == 3 * second);
    witness(4 * second, 3);
    CHECK(aggregator.ooms()[0].others.bytes == 2);
    fail(5 * second);
    witness(60 * second, 4);  // too late to tell of the failure
    CHECK(aggregator.ooms()[1].others.bytes == 3);
}

TEST_CASE("facts of the program's own memory") {
    OomFigures figures = plain_figures(40 * gib);
    CHECK_FALSE(says(figures, "freed nothing"));
    figures.oom.allocations = {10, 50};
    CHECK(
        says(figures, "One call site has allocated 10 times, freed nothing, and holds 30.00 GiB."));
    figures.oom.allocations = {100, 5};  // a small one, and few
    CHECK_FALSE(says(figures, "freed nothing"));

    figures = plain_figures(40 * gib);
    figures.oom.pool.allocated = 37 * gib;
    CHECK(says(figures, "3.00 GiB freed but not yet safe to reuse"));
    CHECK(says(figures, "would have been enough: the capture or the work"));

    figures = plain_figures(16);
    CHECK(says(figures, "The driver refused it although 39.00 GiB were free"));
}

TEST_CASE("what the program holds beside the pool is named by kind") {
    OomFigures figures = plain_figures(40 * gib);
    auto& kinds = figures.oom.kinds;
    kinds[static_cast<std::size_t>(MemoryKind::device)] = 42 * gib;
    kinds[static_cast<std::size_t>(MemoryKind::array)] = gib;
    kinds[static_cast<std::size_t>(MemoryKind::pinned)] = 7 * gib;
    kinds[static_cast<std::size_t>(MemoryKind::managed)] = 3 * gib;
    CHECK(says(figures,
               "Outside the pool this program holds 2.00 GiB (device), 1.00 GiB (array). "
               "Its 3.00 GiB of managed memory may be on the device or on the host."));
    CHECK_FALSE(says(figures, "pinned"));
}

TEST_CASE("pinned memory is the host's") {
    OomFigures figures = plain_figures(40 * gib);
    figures.oom.event.kind = MemoryKind::pinned;
    CHECK(says(figures, "pinned memory of the host"));
    CHECK_FALSE(says(figures, "The device has"));
}

TEST_CASE("a cgroup's limit is the reason where the device has the memory") {
    OomFigures figures = plain_figures(4 * gib);
    figures.group = "/pods/one";
    figures.oom.event.limit_source = trace::LimitSource::dmem;
    figures.oom.event.group_limit = {.group = 1, .limit = 48 * gib, .used = 46 * gib};
    CHECK(says(figures, "The device has 80.00 GiB, 39.00 GiB of it free."));
    CHECK(says(figures,
               "The cgroup /pods/one may have 48.00 GiB of it (dmem.max), and its processes "
               "have 46.00 GiB: 2.00 GiB are left; 6.00 GiB of that are not this "
               "program's allocations."));
    CHECK(says(figures,
               "The driver refused it: it is short by 2.00 GiB, by the cgroup's limit: the device "
               "itself has that much free."));
    CHECK(model::refused_by(figures) == "cgroup");

    // Cached memory that is in pieces is not what is missing.
    figures.oom.event.requested = gib;
    CHECK_FALSE(says(figures, "by the cgroup's limit"));
    // The device has no more than the cgroup.
    figures.oom.event.requested = 40 * gib;
    CHECK(says(figures, "It is short by 38.00 GiB, fragmentation aside."));
    CHECK_FALSE(says(figures, "by the cgroup's limit"));
    // No limit.
    figures.oom.event.group_limit.limit = trace::GroupLimit::unlimited;
    CHECK_FALSE(says(figures, "cgroup"));
    figures.oom.event.limit_source = trace::LimitSource::none;
    figures.oom.event.group_limit.limit = 1;
    CHECK_FALSE(says(figures, "cgroup"));
}

TEST_CASE("a limit that the driver shows as the device's memory") {
    OomFigures figures = plain_figures(4 * gib);
    figures.group = "/";
    figures.oom.event.device_total = 42 * gib;
    figures.oom.event.device_free = gib;
    figures.oom.event.limit_source = trace::LimitSource::nvml;
    figures.oom.event.group_limit = {.group = 1, .limit = 42 * gib, .used = 39 * gib};
    // What NVML said earlier is less than what the program has reserved since.
    CHECK_FALSE(says(figures, "by the cgroup's limit"));
    figures.oom.event.group_limit.used = 41 * gib;
    CHECK(says(figures,
               "The cgroup / may have 42.00 GiB, which the driver shows as the device's "
               "memory (NVML's memory limit), and its processes had 41.00 GiB when NVML "
               "was last asked: 1.00 GiB are left."));
    CHECK(says(figures, "it is short by 3.00 GiB, by the cgroup's limit."));
    // A limit that is the whole device, which others use.
    figures.oom.event.group_limit.used = 20 * gib;
    figures.oom.current = {10 * gib, 10 * gib, 10 * gib, 10 * gib};
    CHECK_FALSE(says(figures, "by the cgroup's limit"));
    // More than the cgroup may ever have.
    figures.oom.event.group_limit.used = 41 * gib;
    figures.oom.event.requested = 50 * gib;
    CHECK(says(figures, "by the cgroup's limit."));
}

TEST_CASE("a cache on top is named, and its growth is none of the program's") {
    trace::Aggregator aggregator;
    aggregator.on(trace::DeviceInfo{.index = 0, .total_bytes = gib});
    aggregator.on(trace::StringDef{.id = 1, .text = "cuMemAlloc_v2"});
    aggregator.on(trace::ModuleDef{.id = 1, .path = "/torch/lib/libc10_cuda.so", .bias = 4096});
    aggregator.on(trace::StackDef{.id = 1, .frames = {{.module = 1, .address = 100}}});
    for (std::uint64_t i = 0; i < 10; ++i) {
        trace::Event event;
        event.api = 1;
        event.stack = 1;
        event.address = (i + 1) * gib;
        event.requested = 50 * mib;
        event.size = 50 * mib;
        aggregator.on(event);
    }
    aggregator.on(trace::OomEvent{.api = 1,
                                  .stack = 1,
                                  .requested = 600 * mib,
                                  .device_free = 500 * mib,
                                  .device_total = gib,
                                  .error = 2});
    REQUIRE(aggregator.ooms().size() == 1);
    const trace::OomTotals& oom = aggregator.ooms()[0];
    CHECK(oom.allocations == std::vector<std::uint64_t>{10});
    const OomFigures figures = model::oom_figures(aggregator, oom);
    CHECK(says(figures, "500.00 MiB were allocated through PyTorch's own cache: how much of that"));
    CHECK_FALSE(says(figures, "freed nothing"));

    // Switched off, it is no cache, and what grows is the program's.
    aggregator.on(trace::OptionValue{.name = "PYTORCH_NO_CUDA_MEMORY_CACHING", .value = "1"});
    const OomFigures without = model::oom_figures(aggregator, oom);
    CHECK_FALSE(says(without, "PyTorch"));
    CHECK(says(without, "One call site has allocated 10 times"));

    const auto holders = model::oom_holders(aggregator, oom, 5);
    REQUIRE(holders.size() == 1);
    CHECK(holders[0].bytes == 500 * mib);
    CHECK(holders[0].count == 10);
    CHECK(holders[0].api == "cuMemAlloc_v2");
    REQUIRE(holders[0].frames.size() == 1);
    CHECK(holders[0].frames[0].module == "/torch/lib/libc10_cuda.so");
    CHECK(holders[0].frames[0].address + holders[0].frames[0].bias == 4196);
    CHECK(model::oom_request(aggregator, oom).frames.size() == 1);
}

TEST_CASE("the holders are called what the program calls them") {
    trace::Aggregator aggregator;
    aggregator.on(trace::DeviceInfo{.index = 0});
    aggregator.on(trace::StringDef{.id = 1, .text = "results\x1b[2J"});
    for (std::uint64_t i = 0; i < 10; ++i) {
        trace::Event event;
        event.address = (i + 1) * gib;
        event.requested = 50 * mib;
        event.size = 50 * mib;
        aggregator.on(event);
        event.type = trace::EventType::label;
        event.name = 1;
        aggregator.on(event);
    }
    aggregator.on(trace::OomEvent{
        .requested = 600 * mib, .device_free = 500 * mib, .device_total = gib, .error = 2});
    const OomFigures figures = model::oom_figures(aggregator, aggregator.ooms()[0]);
    CHECK(says(figures, "One call site (\"results?[2J\") has allocated 10 times"));
    const auto holders = model::oom_holders(aggregator, aggregator.ooms()[0], 5);
    REQUIRE(holders.size() == 1);
    REQUIRE(holders[0].labels.size() == 1);
    CHECK(holders[0].labels[0].count == 10);
    CHECK(holders[0].labels[0].bytes == 500 * mib);
}

TEST_CASE("names stand with their bytes unless one is all that there is") {
    using model::MemoryLabel;
    const std::vector<MemoryLabel> one = {{"weights", 1, 5 * mib}};
    CHECK(model::format_labels({}, 5).empty());
    CHECK(model::format_labels(one, 5 * mib) == "\"weights\"");
    CHECK(model::format_labels(one, 6 * mib) == "\"weights\" 5.00 MiB");
    std::vector<MemoryLabel> shaped = {{"weights", 1, 5 * mib, "float32[512, 512]"}};
    CHECK(model::format_labels(shaped, 5 * mib) == "\"weights\" float32[512, 512]");
    CHECK(model::format_labels(shaped, 6 * mib) == "\"weights\" float32[512, 512] 5.00 MiB");
    model::add_label(shaped.front(), shaped);
    CHECK(model::format_labels(shaped, 10 * mib) == "\"weights\" float32[512, 512]");
    model::add_label({"weights", 1, mib, "float32[512]"}, shaped);
    CHECK(model::format_labels(shaped, 11 * mib) == "\"weights\"");
    std::vector<MemoryLabel> rest = {{"(other names)", 9, 9 * mib}, {"a", 1, mib}, {"b", 1, mib}};
    rest.push_back({"c", 1, mib});
    model::sort_labels(rest);
    CHECK(model::format_labels(rest, 12 * mib) ==
          "\"a\" 1.00 MiB, \"b\" 1.00 MiB, \"c\" 1.00 MiB and others");
    std::vector<MemoryLabel> many;
    for (const char* name : {"d", "a", "b", "a", "c"}) {
        model::add_label({name, 1, name[0] == 'a' ? 3 * mib : mib}, many);
    }
    model::sort_labels(many);
    CHECK(model::format_labels(many, 9 * mib) ==
          "\"a\" 6.00 MiB, \"d\" 1.00 MiB, \"b\" 1.00 MiB and 1 more");
    CHECK(model::format_label_names(many) == "\"a\", \"d\", \"b\" and 1 more");
}

TEST_CASE("any figures make a bounded text") {
    std::mt19937_64 random(5);
    const auto any = [&] { return random() >> (random() % 64); };
    for (int i = 0; i < 20000; ++i) {
        OomFigures figures = plain_figures(any());
        trace::OomTotals& oom = figures.oom;
        oom.event.kind = static_cast<MemoryKind>(random() % trace::memory_kind_count);
        oom.event.device_free = any();
        oom.event.device_total = any();
        oom.event.limit = any();
        oom.event.largest_free_block = any();
        oom.pool = {any(), any(), any(), any(), any()};
        oom.current = {any(), any(), any(), any()};
        for (std::uint64_t& kind : oom.kinds) {
            kind = any();
        }
        oom.others = {random() % 2 == 0, any(), any(), any()};
        figures.by_own_limit = random() % 4 == 0;
        figures.allocator = figures.by_own_limit ? "PyTorch" : "";
        oom.event.limit_source = static_cast<trace::LimitSource>(random() % 3);
        oom.event.group_limit = {.group = 1, .limit = any(), .used = any(), .guaranteed = any()};
        const std::vector<std::string> sentences = model::explain_oom(figures);
        CHECK(sentences.size() <= 9);
        for (const std::string& sentence : sentences) {
            CHECK((sentence.size() > 10 && sentence.size() < 600));
        }
    }
}
