// Small programs, each inefficient in one way, and their findings.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/inefficiencies/inefficiencies.hpp"
#include "report/inefficiencies/render.hpp"
#include "report/inefficiencies/reserve_findings.hpp"
#include "tests/catch.hpp"
#include "tests/unit/report/pool_recording.hpp"

using namespace memlab::test;
using namespace memlab::model;
using namespace memlab::report;

namespace {

constexpr std::uint64_t mib = PoolRecording::mib;

struct Looked {
    Inefficiencies found;
    std::string problem;

    /// The only device's only finding of that pattern; null when there is none.
    const Finding* only(Pattern pattern) const {
        const Finding* only = nullptr;
        for (const auto* list : {&found.devices.at(0).findings, &found.devices.at(0).calls}) {
            for (const Finding& finding : *list) {
                if (finding.pattern == pattern) {
                    CHECK(only == nullptr);
                    only = &finding;
                }
            }
        }
        return only;
    }
};

/// The pool's options in effect and with changes, as the option table reads them.
memlab::report::whatif::ReadPoolSettings pool_settings(const std::vector<OptionValue>&) {
    return [](const memlab::report::whatif::PoolSettings& changes,
              memlab::allocator::PoolOptions* options, bool*, std::string*) {
        *options = {};
        for (const auto& [name, value] : changes) {
            if (name != "MEMLAB_BACKEND") {
                return false;  // the others are not tried here
            }
            options->expandable = value == "vmm";
        }
        return true;
    };
}

/// `recording` must outlive the result.
Looked look(PoolRecording& recording, InefficiencyQuery query = {}) {
    const Report& report = recording.read();
    Resolver resolver(report, nullptr);
    if (query.taken.empty()) {
        query.taken.assign(report.sites.size(), true);
    }
    query.pool_settings = pool_settings;
    Looked looked;
    looked.found = find_inefficiencies(report, resolver, recording.log(), query, &looked.problem);
    return looked;
}

}  // namespace

TEST_CASE("a program that keeps what it uses and frees what it does not: nothing is found") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 20).alloc(0, 10, 1);
    for (int step = 0; step < 20; ++step) {
        recording.alloc(10, 4, 2).give_back(10, 4).step();
    }
    recording.give_back(0, 10);
    const Looked looked = look(recording);
    CHECK(looked.problem == nothing);
    CHECK(looked.found.steps == "mark \"step\"");
    CHECK(looked.found.devices.at(0).findings.empty());
    CHECK(looked.found.devices.at(0).calls.empty());
    CHECK(looked.found.notes.empty());
}

TEST_CASE("what grows at every step is a leak for certain, and the peak without it is computed") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 200);
    for (std::uint64_t step = 0; step < 40; ++step) {
        recording.alloc(step, 1, 1).alloc(100, 10, 2).give_back(100, 10).step();
    }
    const Looked looked = look(recording);
    const Finding* const leak = looked.only(Pattern::leak);
    REQUIRE(leak != nullptr);
    CHECK(leak->confidence == Confidence::certain);
    CHECK(leak->place.function == "keep");
    CHECK(leak->count == 40);
    CHECK(leak->saving.end_bytes == 40 * mib);
    // 50 MiB at the peak; without the leak 10 of work and the allocations of a step. The first
    // step's end is recognized at the second, so at most two of them remain.
    CHECK(leak->saving.peak_is_exact);
    CHECK(leak->saving.peak_bytes == (50 - 12) * mib);
    CHECK(leak->what ==
          "40 allocations were never freed (40.00 MiB). It grows by 1.00 MiB at "
          "every step.");
}

TEST_CASE("growth is suppressed by a file of suppressions, not by those that are built in") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 200);
    for (std::uint64_t step = 0; step < 40; ++step) {
        recording.alloc(step, 1, 1).step();
    }
    SuppressionList keep = parse_suppressions("[k]\nreason = a cache\nfunc = keep\n");
    InefficiencyQuery query;
    query.suppressions = &keep.list;
    CHECK(look(recording, query).only(Pattern::leak) == nullptr);
    keep.list.at(0).built_in = true;
    CHECK(look(recording, query).only(Pattern::leak) != nullptr);
}

namespace {

/// Of 20 short-lived blocks every fifth is never freed, and one is in use when the program ends.
void forget_some(PoolRecording& recording) {
    recording.segment(EventType::segment_alloc, 0, 100);
    for (std::uint64_t i = 0; i < 20; ++i) {
        recording.alloc(i, 1, 1);
        if (i % 5 != 0) {
            recording.give_back(i, 1);
        }
    }
    recording.alloc(60, 1, 1);
}

}  // namespace

TEST_CASE("what outstays all others of its place is likely to be a leak, unless it is suppressed") {
    PoolRecording recording;
    recording.alloc(50, 10, 2);  // never freed, like all of its place: may be intended
    forget_some(recording);
    const Looked looked = look(recording);
    const Finding* const leak = looked.only(Pattern::leak);
    REQUIRE(leak != nullptr);
    CHECK(leak->confidence == Confidence::likely);
    CHECK(leak->place.function == "keep");
    CHECK(leak->saving.end_bytes == 4 * mib);
    CHECK_FALSE(leak->saving.peak_is_exact);
    CHECK(looked.found.notes.size() == 1);  // no steps

    const SuppressionList keep = parse_suppressions("[k]\nreason = a cache\nfunc = keep\n");
    InefficiencyQuery query;
    query.suppressions = &keep.list;
    CHECK(look(recording, query).only(Pattern::leak) == nullptr);
}

TEST_CASE("what was held where the recording stopped may have been freed later: no leak") {
    PoolRecording recording;
    forget_some(recording);
    const Looked looked = look(recording.stop());
    CHECK(recording.report.log.stopped_time_ns);
    CHECK(looked.only(Pattern::leak) == nullptr);
}

TEST_CASE("the old one freed after the new one was made") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100).alloc(80, 5, 2).alloc(0, 10, 1);
    for (std::uint64_t i = 0; i < 10; ++i) {
        recording.alloc((i + 1) % 2 * 10, 10, 1).give_back(i % 2 * 10, 10);
    }
    const Looked looked = look(recording);
    const Finding* const late = looked.only(Pattern::late_deallocation);
    REQUIRE(late != nullptr);
    CHECK(late->confidence == Confidence::possible);
    CHECK(late->count == 10);
    CHECK(late->bytes == 100 * mib);
    CHECK(late->saving.peak_is_exact);
    CHECK(late->saving.peak_bytes == 10 * mib);  // 25 with two of them, 15 with one

    PoolRecording other_size;
    other_size.segment(EventType::segment_alloc, 0, 100).alloc(0, 10, 1);
    for (std::uint64_t i = 0; i < 10; ++i) {
        other_size.alloc(20 + 10 * (i % 2), 1 + i, 1).alloc(90, 1, 2).give_back(90, 1);
        other_size.give_back(20 + 10 * (i % 2), 1 + i);
    }
    CHECK(look(other_size).only(Pattern::late_deallocation) == nullptr);
}

TEST_CASE("buffers that are made together and freed together replace none of the others") {
    for (const std::uint64_t layers : {2, 3, 4, 7}) {
        CAPTURE(layers);
        PoolRecording recording;
        recording.segment(EventType::segment_alloc, 0, 100);
        for (int step = 0; step < 40; ++step) {
            for (std::uint64_t layer = 0; layer < layers; ++layer) {
                recording.alloc(layer, 1, 1);
            }
            for (std::uint64_t layer = 0; layer < layers; ++layer) {
                recording.give_back(layer, 1);  // the oldest first
            }
        }
        CHECK(look(recording).only(Pattern::late_deallocation) == nullptr);
    }
}

TEST_CASE("something else made or freed in between says that the old one may still be needed") {
    for (const bool freed : {false, true}) {
        CAPTURE(freed);
        PoolRecording recording;
        recording.segment(EventType::segment_alloc, 0, 100).alloc(80, 5, 2).alloc(0, 10, 1);
        for (std::uint64_t i = 0; i < 10; ++i) {
            if (freed) {
                recording.alloc(90, 1, 2);
            }
            recording.alloc((i + 1) % 2 * 10, 10, 1);
            if (!freed) {
                recording.alloc(90, 1, 2);
            }
            recording.give_back(90, 1).give_back(i % 2 * 10, 10);
        }
        CHECK(look(recording).only(Pattern::late_deallocation) == nullptr);
    }
}

TEST_CASE("a ring of buffers, each freed when the third after it is made, is one of three") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100);
    for (std::uint64_t i = 0; i < 40; ++i) {
        recording.alloc(i % 4 * 10, 10, 1);
        if (i >= 3) {
            recording.give_back((i - 3) % 4 * 10, 10);
        }
    }
    CHECK(look(recording).only(Pattern::late_deallocation) == nullptr);
}

TEST_CASE("a peak elsewhere is not lowered, so there is nothing to say") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100).alloc(0, 90, 2).give_back(0, 90);
    recording.alloc(0, 10, 1);
    for (std::uint64_t i = 0; i < 10; ++i) {
        recording.alloc((i + 1) % 2 * 10, 10, 1).give_back(i % 2 * 10, 10);
    }
    CHECK(look(recording).only(Pattern::late_deallocation) == nullptr);
}

TEST_CASE("what outlives its step") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100);
    for (std::uint64_t step = 0; step < 12; ++step) {
        recording.alloc(step % 2 * 10, step == 0 ? 1 : 8, 1).alloc(40, 6, 2).give_back(40, 6);
        if (step > 0) {
            recording.give_back((step - 1) % 2 * 10, step == 1 ? 1 : 8);  // of the step before
        }
        recording.step();
    }
    const Looked looked = look(recording);
    const Finding* const late = looked.only(Pattern::over_long_life);
    REQUIRE(late != nullptr);
    CHECK(late->confidence == Confidence::possible);
    CHECK(late->place.function == "keep");
    CHECK(late->count == 10);  // the first step's end is recognized at the second
    CHECK(late->what.find("freed 1 step later") != std::string::npos);
    // Two of them and the work are 22; one is 14, and 15 with that of the first step.
    CHECK(late->saving.peak_bytes == (22 - 15) * mib);
    CHECK(looked.found.notes.empty());
}

TEST_CASE("patterns are looked for alone when asked so, and sites that are not taken are not") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100).alloc(0, 10, 1);
    for (std::uint64_t i = 0; i < 10; ++i) {
        recording.alloc((i + 1) % 2 * 10, 10, 1).give_back(i % 2 * 10, 10);
    }
    InefficiencyQuery query;
    query.patterns = {Pattern::leak};
    CHECK(look(recording, query).only(Pattern::late_deallocation) == nullptr);
    query.patterns = {Pattern::late_deallocation};
    CHECK(look(recording, query).only(Pattern::late_deallocation) != nullptr);
    query.taken.assign(recording.report.sites.size(), false);
    CHECK(look(recording, query).only(Pattern::late_deallocation) == nullptr);
}

TEST_CASE("what is said of reserved memory is what a replay without it shows") {
    PoolRecording recording;  // as the pool does it: what is kept takes the cached segment
    recording.segment(EventType::segment_alloc, 0, 128)
        .alloc(0, 128, 2)
        .give_back(0, 128)
        .alloc(0, 16, 1)
        .segment(EventType::segment_alloc, 200, 128)
        .alloc(200, 128, 2)
        .give_back(200, 128);
    const Looked looked = look(recording);
    const Finding* const keeps = looked.only(Pattern::fragmentation_source);
    REQUIRE(keeps != nullptr);
    CHECK(keeps->place.function == "keep");
    CHECK(keeps->confidence == Confidence::likely);
    CHECK(keeps->count == 1);
    CHECK(keeps->bytes == 16 * mib);
    // First, it has a segment of its own: 16 + 128 instead of 256.
    CHECK(keeps->saving.reserved_bytes == 112 * mib);

    PoolRecording waiting;
    waiting.segment(EventType::segment_alloc, 0, 128)
        .alloc(0, 128, 1)
        .give_back(0, 128, false)
        .segment(EventType::segment_alloc, 200, 128)
        .alloc(200, 128, 2)
        .give_back(200, 128);
    const Looked waits = look(waiting);
    REQUIRE(waits.only(Pattern::late_reuse) != nullptr);
    CHECK(waits.only(Pattern::late_reuse)->saving.reserved_bytes == 128 * mib);
}

TEST_CASE("reserved memory that a replay does not bear out is not spoken of") {
    // Nothing would have been saved: what is kept needs a segment anyway.
    PoolRecording needed;
    needed.segment(EventType::segment_alloc, 0, 20)
        .alloc(0, 4, 1)
        .segment(EventType::segment_alloc, 40, 20)
        .alloc(40, 18, 2)
        .give_back(40, 18);
    CHECK(look(needed).only(Pattern::fragmentation_source) == nullptr);
    // Not what the pool does: its replay tells nothing of this recording.
    PoolRecording strange;
    strange.segment(EventType::segment_alloc, 0, 20)
        .alloc(0, 1, 1)
        .segment(EventType::segment_alloc, 40, 20)
        .alloc(40, 16, 2)
        .give_back(40, 16, false)
        .segment(EventType::segment_alloc, 100, 40)
        .alloc(100, 30, 2)
        .give_back(100, 30);
    const Looked looked = look(strange);
    CHECK(looked.only(Pattern::fragmentation_source) == nullptr);
    CHECK(looked.only(Pattern::late_reuse) == nullptr);
}

namespace {

/// Sizes that only rise: each needs a segment of its own, and none is used again.
void rise(PoolRecording& recording, std::uint64_t unit) {
    std::uint64_t at = 0;
    for (std::uint64_t size = unit; size <= 10 * unit; size += unit) {
        recording.segment(EventType::segment_alloc, at, size)
            .alloc(at, size, 1)
            .give_back(at, size);
        at += size + 1;
    }
}

}  // namespace

TEST_CASE(
    "reserved memory that is a multiple of allocated is said, with the setting that mends it") {
    PoolRecording recording;
    rise(recording, 16);
    const Looked looked = look(recording);
    REQUIRE(looked.found.devices.at(0).reserve);
    const UnusedReserve& reserve = *looked.found.devices.at(0).reserve;
    CHECK(reserve.reserved_bytes == 880 * mib);
    CHECK(reserve.allocated_bytes == 160 * mib);
    CHECK(reserve.setting == "MEMLAB_BACKEND=vmm");
    CHECK(reserve.with_setting_bytes == 160 * mib);
    const std::string text = render_inefficiencies(looked.found, ViewOptions());
    CHECK(text.find("880.00 MiB were reserved, 5.5 times the 160.00 MiB") != std::string::npos);

    CHECK(reserve.text() ==
          "At most 880.00 MiB were reserved, 5.5 times the 160.00 MiB that were allocated at most. "
          "With MEMLAB_BACKEND=vmm a replay reserves 160.00 MiB at most.");

    // The summary says it in the same words, before all figures of the GPU.
    const Report& report = recording.read();
    Resolver resolver(report, nullptr);
    Summary summary = summarize("x.memlog", report, resolver);
    const std::string before = render_text(summary, resolver, TextOptions());
    CHECK(before.find("memlab-report inefficiencies replays") != std::string::npos);
    try_settings_on_reserve(recording.log(), pool_settings, summary);
    const std::string said = render_text(summary, resolver, TextOptions());
    const std::size_t at = said.find("At most 880.00 MiB were reserved, 5.5 times the 160.00 MiB");
    REQUIRE(at != std::string::npos);
    CHECK(at < said.find("at the end"));
    CHECK(said.find("MEMLAB_BACKEND=vmm") != std::string::npos);

    PoolRecording other;  // not what the pool does with these sizes
    rise(other, 15);
    const Looked unproven = look(other);
    REQUIRE(unproven.found.devices.at(0).reserve);
    CHECK(unproven.found.devices.at(0).reserve->setting.empty());
    PoolRecording small;  // nor with these, and 45 MiB are little
    rise(small, 1);
    CHECK_FALSE(look(small).found.devices.at(0).reserve);
}

TEST_CASE("nothing below a hundredth of the GPU's peak is told") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 400).alloc(200, 110, 2).alloc(0, 1, 1);
    for (std::uint64_t i = 0; i < 10; ++i) {
        recording.alloc((i + 1) % 2, 1, 1).give_back(i % 2, 1);
    }
    CHECK(look(recording).only(Pattern::late_deallocation) == nullptr);
}

TEST_CASE("places that free nothing are named where no pattern is found") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100);
    for (std::uint64_t i = 0; i < 60; ++i) {
        recording.alloc(i, 1, 1);
    }
    const std::string text = render_inefficiencies(look(recording).found, ViewOptions());
    CHECK(text.find("No findings. Looked for: leak, late deallocation, fragmentation") !=
          std::string::npos);
    CHECK(text.find("60 allocations of 60.00 MiB in all, by /opt/app/model.py:5") !=
          std::string::npos);
    CHECK(text.find("never freed") != std::string::npos);
}

TEST_CASE("buffers that would be kept beside a peak elsewhere are no advice") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100);
    for (std::uint64_t i = 0; i < 300; ++i) {
        recording.alloc(0, 40, 1).give_back(0, 40);
    }
    CHECK(look(recording).only(Pattern::temporary_churn) != nullptr);
    recording.alloc(0, 40, 2).give_back(0, 40);  // when none of the others is held
    CHECK(look(recording).only(Pattern::temporary_churn) == nullptr);
}

TEST_CASE("rounding at the peak") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100)
        .alloc(0, 10, 1, mib)
        .alloc(10, 10, 1, mib / 2)
        .alloc(20, 10, 2);
    const Looked looked = look(recording);
    const Finding* const rounding = looked.only(Pattern::oversized_alignment);
    REQUIRE(rounding != nullptr);
    CHECK(rounding->confidence == Confidence::certain);
    CHECK(rounding->count == 2);
    CHECK(rounding->saving.peak_bytes == mib + mib / 2);
    CHECK(rounding->saving.peak_is_exact);
    CHECK(rounding->what ==
          "At the peak 2 allocations took 20.00 MiB for 18.50 MiB: the rest is rounding.");
}

TEST_CASE("allocations that a few buffers would serve") {
    PoolRecording churn;
    churn.segment(EventType::segment_alloc, 0, 100);
    for (std::uint64_t i = 0; i < 300; ++i) {
        churn.alloc(0, 1 + i % 3, 1).give_back(0, 1 + i % 3);
    }
    const Looked looked = look(churn);
    const Finding* const temporary = looked.only(Pattern::temporary_churn);
    REQUIRE(temporary != nullptr);
    CHECK(temporary->buffers == 1);
    CHECK(temporary->buffer_bytes == 3 * mib);
    CHECK(temporary->saving.calls == 299);
    CHECK(temporary->change == "Keep one buffer of 3.00 MiB and use it again.");

    PoolRecording pairs;
    pairs.segment(EventType::segment_alloc, 0, 100);
    for (std::uint64_t i = 0; i < 200; ++i) {
        pairs.alloc(0, 1, 1).alloc(1, 1, 1).alloc(2, 1, 2);
        pairs.give_back(0, 1).give_back(1, 1).give_back(2, 1);
    }
    const Looked two = look(pairs);
    const Finding* const redundant = two.only(Pattern::redundant_allocation);
    REQUIRE(redundant != nullptr);
    CHECK(redundant->place.function == "keep");
    CHECK(redundant->buffers == 2);
    CHECK(redundant->saving.calls == 398);
    CHECK(two.only(Pattern::temporary_churn)->place.function == "work");
}

TEST_CASE("buffers that would take more than the program held are no advice") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100).alloc(80, 20, 1);
    for (std::uint64_t i = 0; i < 300; ++i) {  // one of 20 MiB and many of 1: not 9 of 20
        for (std::uint64_t part = 0; part < 8; ++part) {
            recording.alloc(part, 1, 1);
        }
        for (std::uint64_t part = 0; part < 8; ++part) {
            recording.give_back(part, 1);
        }
    }
    const Looked looked = look(recording);
    CHECK(looked.only(Pattern::redundant_allocation) == nullptr);
    CHECK(looked.only(Pattern::temporary_churn) == nullptr);
}

TEST_CASE("memory that lives while the GPU does nothing") {
    constexpr std::uint64_t second = 1'000'000'000;
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100);
    recording.alloc(0, 30, 1).wait(second).give_back(0, 30);
    recording.wait(second).alloc(0, 10, 2).wait(second);
    const std::uint64_t begin = recording.now();
    recording.wait(second).give_back(0, 10).kernel(begin, begin + 1000);  // recorded late
    const Looked looked = look(recording);
    const Finding* const unused = looked.only(Pattern::unused_allocation);
    REQUIRE(unused != nullptr);
    CHECK(unused->place.function == "keep");
    CHECK(unused->count == 1);
    CHECK(unused->saving.peak_bytes == 20 * mib);  // of 30, 10 remain

    PoolRecording no_work;
    no_work.segment(EventType::segment_alloc, 0, 100).alloc(0, 30, 1).wait(second).give_back(0, 30);
    CHECK(look(no_work).only(Pattern::unused_allocation) == nullptr);
}

TEST_CASE("what is missing is said") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100).alloc(0, 30, 1);
    InefficiencyQuery query;
    query.step = "epoch";
    CHECK(look(recording, query).problem.find("no steps of the name epoch") == 4);
    Resolver resolver(recording.report, nullptr);
    query.step.clear();
    query.taken.assign(recording.report.sites.size(), true);
    std::string problem;
    find_inefficiencies(recording.report, resolver, {}, query, &problem);
    CHECK(problem.find("sums, not moments") != std::string::npos);
}

TEST_CASE("as text and as JSON") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100).alloc(80, 5, 2).alloc(90, 5, 2);
    recording.alloc(0, 10, 1);
    for (std::uint64_t i = 0; i < 10; ++i) {
        recording.alloc((i + 1) % 2 * 10, 10, 1).give_back(i % 2 * 10, 10);
    }
    recording.give_back(90, 5);
    for (std::uint64_t i = 0; i < 150; ++i) {
        recording.alloc(90, 5, 2).give_back(90, 5);
    }
    recording.give_back(80, 5).give_back(0, 10);
    const Looked looked = look(recording);
    ViewOptions options;
    options.style.ascii = true;
    CHECK(render_inefficiencies(looked.found, options) ==
          R"(GPU 0: GPU  peak: 30.00 MiB allocated, 100.00 MiB reserved
  unused reserve: At most 100.00 MiB were reserved, 3.3 times the 30.00 MiB that
  were allocated at most. No setting that could be replayed reserves clearly
  less.

  1. late deallocation: saves 10.00 MiB of the peak, 33.3% (possible)
     /opt/app/model.py:5  keep
     10 of 11 were freed right after the next one of the same size had been
     made: both were held at once.
     > If the new one is not computed from the old one, free the old one first
       (del x, then x = ...); else write the new values into it, if the
       computation allows it.

A few buffers that are kept would serve all allocations of these places:
         calls   share  buffers     of each  where
           152   93.3%        2    5.00 MiB  /opt/app/model.py:15  work *
  * most are freed before their thread allocates anything else

  ! The program marks no steps and none were found, so memory that outlives a
    step or grows with steps is not found: docs/scopes.md shows how to mark
    them.
)");
    options.top = 0;
    CHECK(render_inefficiencies(looked.found, options).find("[1 other; --top shows more]") !=
          std::string::npos);
    Resolver resolver(recording.report, nullptr);
    const auto json = nlohmann::json::parse(
        inefficiencies_json(recording.report, resolver, looked.found, options));
    const auto& findings = json["devices"][0]["findings"];
    REQUIRE(findings.size() == 2);
    CHECK(findings[0]["pattern"] == "late_deallocation");
    CHECK(findings[0]["saves"]["peak_bytes"] == 10 * mib);
    CHECK(findings[0]["buffers"].is_null());
    CHECK(findings[0]["stack"][0]["function"] == "keep");
    CHECK(findings[1]["pattern"] == "temporary_churn");
    CHECK(findings[1]["buffers"] == 2);
    CHECK(json["steps"].is_null());
}

TEST_CASE(
    "what only the garbage collector freed is a reference cycle, as far as the peak held it") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100);
    recording.alloc(0, 10, 1).alloc(10, 10, 1).alloc(20, 10, 1).alloc(30, 30, 2);  // the peak
    recording.give_back(0, 10).collect(10, 10).collect(20, 10);
    recording.alloc(10, 10, 1).alloc(60, 1, 2).collect(10, 10).collect(60, 1).give_back(30, 30);
    const Looked looked = look(recording);
    const Finding* const cycle = looked.only(Pattern::reference_cycle);
    REQUIRE(cycle != nullptr);  // not of the place "work": its cycle came after the peak
    CHECK(cycle->place.function == "keep");
    CHECK(cycle->confidence == Confidence::likely);
    CHECK(cycle->count == 3);
    CHECK(cycle->bytes == 30 * mib);
    CHECK(cycle->saving.peak_bytes == 20 * mib);
    CHECK_FALSE(cycle->saving.peak_is_exact);
    CHECK(cycle->what ==
          "3 of 4 were freed only when Python's garbage collector ran (30.00 MiB in all); 2 of "
          "them were held at the peak.");
    CHECK(looked.found.devices.at(0).collected == Collected{4, 31 * mib, 2, 20 * mib});
    ViewOptions options;
    options.top = 10;
    const std::string text = render_inefficiencies(looked.found, options);
    CHECK(text.find("Held until Python's garbage collector ran: 4 allocations") !=
          std::string::npos);
    CHECK(text.find(" 33.3%.") != std::string::npos);
    InefficiencyQuery other;
    other.patterns = {Pattern::leak};
    CHECK(look(recording, other).only(Pattern::reference_cycle) == nullptr);
}

TEST_CASE("what the program freed itself is no reference cycle") {
    PoolRecording recording;
    recording.segment(EventType::segment_alloc, 0, 100);
    recording.alloc(0, 10, 1).alloc(10, 10, 1).give_back(0, 10).give_back(10, 10);
    CHECK(look(recording).only(Pattern::reference_cycle) == nullptr);
}
