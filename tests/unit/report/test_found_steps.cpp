// Programs of which the number of iterations is known, and of which no step is marked.
#include <algorithm>
#include <map>
#include <random>

#include "model/json_writer.hpp"
#include "report/reading/found_steps.hpp"
#include "report/reading/reader.hpp"
#include "tests/catch.hpp"
#include "tests/unit/report/recorded.hpp"

using namespace memlab::test;
namespace model = memlab::model;
namespace report = memlab::report;

namespace {

constexpr std::uint32_t main_thread = 100;
constexpr std::uint32_t backward_thread = 101;

/// Writes the records of a program call by call. Call sites are named; those that begin with
/// "optimizer" run Adam's step(), called at the line that their name has behind a colon; those with
/// an @ are called in train(), at the line behind it.
class Program {
  public:
    explicit Program(std::uint32_t seed, MemoryKind kind = MemoryKind::device)
        : kind_(kind), random_(seed) {
        records_.emplace_back(ProcessInfo{.pid = 42, .executable = "/usr/bin/python3"});
        string("cuMemAlloc_v2");
        records_.emplace_back(DeviceInfo{0, "GPU", "GPU-0", 1ULL << 40, 13000});
        records_.emplace_back(ContextInfo{1, 0, true});
        file_ = string("/home/user/train.py");
        optimizer_file_ = string("/venv/lib/torch/optim/optimizer.py");
        adam_file_ = string("/venv/lib/torch/optim/adam.py");
        wrapper_ = string("Optimizer.profile_hook_step.<locals>.wrapper");
        use_grad_ = string("_use_grad_for_differentiable.<locals>._use_grad");
        step_ = string("Adam.step");
    }

    void keep(const std::string& site, std::uint64_t bytes = 4096) { (void)alloc(site, bytes); }
    std::uint64_t alloc(const std::string& site, std::uint64_t bytes = 4096,
                        std::uint32_t thread = main_thread) {
        Event event = made(EventType::alloc, thread);
        event.stack = stack(site);
        event.api = 1;
        event.address = next_address_;
        event.requested = event.size = bytes;
        next_address_ += (bytes + 511) / 512 * 512;
        sizes_[event.address] = bytes;
        records_.emplace_back(event);
        return event.address;
    }
    void free(std::uint64_t address, std::uint32_t thread = main_thread) {
        Event event = made(EventType::free_requested, thread);
        event.address = address;
        event.size = sizes_.at(address);
        records_.emplace_back(event);
    }
    void mark(const std::string& name) {
        Event event = made(EventType::mark, main_thread);
        event.name = string(name);
        records_.emplace_back(event);
    }
    /// One in `n` calls is true.
    bool sometimes(std::uint32_t n) { return random_() % n == 0; }
    std::uint64_t varying() { return 512 * (1 + random_() % 64); }

    Recorded record() {
        records_.emplace_back(End{++now_, EndKind::exit, 0, ""});
        return Recorded(records_);
    }

  private:
    Event made(EventType type, std::uint32_t thread) {
        Event event;
        event.type = type;
        event.kind = kind_;
        event.context = 1;
        event.thread = thread;
        event.time_ns = ++now_;
        return event;
    }
    std::uint32_t string(const std::string& text) {
        const auto [found, is_new] =
            strings_.emplace(text, static_cast<std::uint32_t>(strings_.size() + 1));
        if (is_new) {
            records_.emplace_back(StringDef{found->second, text});
        }
        return found->second;
    }
    Frame python(std::uint32_t function, std::uint32_t file, std::uint32_t line) {
        records_.emplace_back(PythonFrameDef{++frames_, function, file, line, 1});
        return {0, 0, frames_};
    }
    std::uint32_t stack(const std::string& site) {
        const auto known = stacks_.find(site);
        if (known != stacks_.end()) {
            return known->second;
        }
        std::vector<Frame> frames;
        const auto line = static_cast<std::uint32_t>(1000 + stacks_.size());
        if (site.starts_with("optimizer")) {
            const auto at = static_cast<std::uint32_t>(std::stoul(site.substr(site.find(':') + 1)));
            frames = {python(step_, adam_file_, line), python(use_grad_, optimizer_file_, 70),
                      python(wrapper_, optimizer_file_, 500),
                      python(string("<module>"), file_, at)};
        } else if (const std::size_t at = site.find('@'); at != std::string::npos) {
            frames = {python(string(site.substr(0, at)), file_, line),
                      python(string("train"), file_,
                             static_cast<std::uint32_t>(std::stoul(site.substr(at + 1)))),
                      python(string("<module>"), file_, 200)};
        } else {
            frames = {python(string(site), file_, line)};
        }
        const auto id = static_cast<std::uint32_t>(stacks_.size() + 1);
        records_.emplace_back(StackDef{id, false, frames});
        stacks_.emplace(site, id);
        return id;
    }

    MemoryKind kind_;
    std::mt19937 random_;
    Records records_;
    std::map<std::string, std::uint32_t> strings_;
    std::map<std::string, std::uint32_t> stacks_;
    std::map<std::uint64_t, std::uint64_t> sizes_;
    std::uint64_t next_address_ = 0x7f0000000000;
    std::uint64_t now_ = 0;
    std::uint32_t frames_ = 0;
    std::uint32_t file_ = 0;
    std::uint32_t optimizer_file_ = 0;
    std::uint32_t adam_file_ = 0;
    std::uint32_t wrapper_ = 0;
    std::uint32_t use_grad_ = 0;
    std::uint32_t step_ = 0;
};

/// Makes the parameters of a model, in a loop of its own that frees nothing.
void make_model(Program& program, int layers) {
    for (int layer = 0; layer < layers; ++layer) {
        program.keep("weight");
        program.keep("bias");
        program.keep("buffer");
    }
}

/// A forward and backward pass of sizes that vary; now and then something is logged. Of a loss
/// that is kept the program frees nothing.
void pass(Program& program, int layers, bool leaks = false) {
    std::vector<std::uint64_t> activations;
    const std::uint64_t input = program.alloc("input", program.varying());
    for (int layer = 0; layer < layers; ++layer) {
        activations.push_back(program.alloc("linear", program.varying()));
        activations.push_back(program.alloc("relu", program.varying()));
    }
    const std::uint64_t loss = program.alloc("loss", 512);
    std::vector<std::uint64_t> gradients;
    while (!activations.empty()) {
        gradients.push_back(program.alloc("gradient", 4096, backward_thread));
        program.free(activations.back(), backward_thread);
        activations.pop_back();
        if (program.sometimes(3)) {  // beside the other thread
            program.free(program.alloc("prefetch", program.varying()));
        }
    }
    if (program.sometimes(20)) {
        program.free(program.alloc("log"));
    }
    if (!leaks) {
        program.free(loss);
    }
    program.free(input);
    for (const std::uint64_t gradient : gradients) {
        program.free(gradient);
    }
}

void optimize(Program& program, const std::string& line, int parameters = 12) {
    std::vector<std::uint64_t> temporaries;
    for (int i = 0; i < parameters; ++i) {
        temporaries.push_back(program.alloc("optimizer root:" + line));
    }
    for (int i = 0; i < parameters; ++i) {
        temporaries.push_back(program.alloc("optimizer divide:" + line));
    }
    for (const std::uint64_t each : temporaries) {
        program.free(each);
    }
}

std::uint64_t steps_in(const model::Report& of) {
    REQUIRE(of.steps.size() == 1);
    CHECK(of.steps.front().kind == "found");
    return of.steps.front().steps;
}

model::Report with_found_steps(const Recorded& recorded) {
    model::Report out = recorded.report;
    report::add_found_steps(out, recorded.log());
    return out;
}

}  // namespace

TEST_CASE("the steps of a training are its optimizer's") {
    const std::uint32_t seed = GENERATE(1U, 2U, 3U);
    INFO("seed " << seed);
    Program program(seed);
    make_model(program, 12);
    constexpr int steps = 40;
    for (int step = 0; step < steps; ++step) {
        if (step == 0) {
            program.keep("optimizer state:51");
        }
        pass(program, 6);
        optimize(program, "51");
    }
    const Recorded recorded = program.record();
    const model::Report found = with_found_steps(recorded);
    CHECK(steps_in(found) == steps);
    CHECK(found.steps.front().evidence == "Adam.step returns at train.py:51");
    CHECK(found.steps.front().verdict == "steady");
}

TEST_CASE("a leak of unmarked steps is found, from a log and beside a report") {
    Program program(7);
    make_model(program, 4);
    for (int step = 0; step < 60; ++step) {
        pass(program, 6, true);
        optimize(program, "51");
    }
    const Recorded recorded = program.record();
    model::Report found = with_found_steps(recorded);
    CHECK(steps_in(found) == 60);
    CHECK(found.steps.front().verdict == "growing");
    REQUIRE(found.steps.front().growing.size() == 1);
    const model::Site& site = found.sites[found.steps.front().growing.front().site];
    CHECK(site.live_count == 60);

    report::DeriveResult derived = report::derive_json(recorded.log());
    report::ReadResult parsed = report::parse_report(derived.json);
    REQUIRE(parsed.report);
    CHECK(parsed.report->steps.empty());
    report::add_found_steps(*parsed.report, recorded.log());
    CHECK(parsed.report->steps == found.steps);

    // A report of something else: what grows has other numbers there.
    parsed.report->steps.clear();
    parsed.report->sites[found.steps.front().growing.front().site].count += 1;
    report::add_found_steps(*parsed.report, recorded.log());
    CHECK(parsed.report->steps.empty());
}

TEST_CASE("an epoch is no step of a training") {
    Program program(11);
    make_model(program, 4);
    for (int epoch = 0; epoch < 10; ++epoch) {
        for (int step = 0; step < 15; ++step) {
            pass(program, 4);
            optimize(program, "51");
        }
        for (int batch = 0; batch < 3; ++batch) {
            program.free(program.alloc("evaluation"));
            program.free(program.alloc("accuracy"));
        }
    }
    CHECK(steps_in(with_found_steps(program.record())) == 150);
}

TEST_CASE("two optimizers of one loop make one step") {
    Program program(13);
    make_model(program, 4);
    for (int step = 0; step < 30; ++step) {
        pass(program, 4);
        optimize(program, "60");
        program.free(program.alloc("noise"));
        pass(program, 4);
        optimize(program, "71");
    }
    CHECK(steps_in(with_found_steps(program.record())) == 30);
}

TEST_CASE("with accumulated gradients a step is the optimizer's") {
    Program program(17);
    make_model(program, 4);
    for (int step = 0; step < 25; ++step) {
        for (int part = 0; part < 4; ++part) {
            pass(program, 4);
        }
        optimize(program, "51");
    }
    CHECK(steps_in(with_found_steps(program.record())) == 25);
}

TEST_CASE("an optimizer that allocates nothing ends a step where the gradients are freed") {
    const int passes = GENERATE(1, 2, 3, 8);
    INFO(passes << " passes");
    Program program(18, MemoryKind::suballocation);
    make_model(program, 4);
    std::vector<std::uint64_t> gradients;
    for (int step = 0; step < 25; ++step) {
        for (int part = 0; part < passes; ++part) {
            pass(program, 4);
            for (int parameter = 0; parameter < 6; ++parameter) {
                const std::uint64_t gradient = program.alloc(
                    "gradient of " + std::to_string(parameter), 1 << 20, backward_thread);
                if (part == 0) {
                    gradients.push_back(gradient);
                } else {  // added to the first
                    program.free(gradient, backward_thread);
                }
            }
            if (part == 0 && step % 7 == 0) {  // for the log
                program.free(program.alloc("norm"));
            }
        }
        for (const std::uint64_t gradient : gradients) {  // zero_grad()
            program.free(gradient);
        }
        gradients.clear();
    }
    const model::Report found = with_found_steps(program.record());
    CHECK(steps_in(found) == 25);
    // Each ends without gradients.
    const std::vector<std::uint64_t>& most = found.steps.front().block_max_bytes;
    CHECK(*std::max_element(most.begin(), most.end()) < 1 << 20);
}

TEST_CASE("a clear loop is found behind a long beginning") {
    const int tuned = GENERATE(100, 600);
    INFO(tuned << " trials");
    Program program(21);
    for (int trial = 0; trial < tuned; ++trial) {  // of as many kernels, once each
        program.free(program.alloc("trial " + std::to_string(trial)));
    }
    for (int step = 0; step < 24; ++step) {
        std::vector<std::uint64_t> made;
        for (const char* site : {"scalar", "constant", "batch", "weights"}) {
            made.push_back(program.alloc(site));
            if (site == std::string("constant")) {
                program.free(made.back());
                made.pop_back();
            }
        }
        for (const std::uint64_t each : made) {
            program.free(each);
        }
    }
    const model::Report found = with_found_steps(program.record());
    if (tuned == 100) {
        CHECK(steps_in(found) == 24);
    } else {
        CHECK(found.steps.empty());
    }
}

TEST_CASE("what a program keeps of every tenth iteration makes it no step") {
    Program program(20, MemoryKind::suballocation);
    make_model(program, 4);
    std::uint64_t kept = program.alloc("loss");
    for (int step = 0; step < 200; ++step) {
        pass(program, 4);
        const std::uint64_t loss = program.alloc("loss");
        program.free(step % 10 == 0 ? kept : loss);
        kept = step % 10 == 0 ? loss : kept;
    }
    CHECK(steps_in(with_found_steps(program.record())) == 200);
}

TEST_CASE("a program without an optimizer has the steps of its outermost loop") {
    Program program(19);
    for (int step = 0; step < 50; ++step) {
        const std::uint64_t field = program.alloc("field", 1 << 16);
        for (int sweep = 0; sweep < 5; ++sweep) {
            const std::uint64_t residual = program.alloc("residual");
            program.free(program.alloc("norm", 512));
            program.free(residual);
        }
        program.free(field);
    }
    const model::Report found = with_found_steps(program.record());
    CHECK(steps_in(found) == 50);
    CHECK(found.steps.front().evidence.ends_with("call sites return in each"));
}

TEST_CASE("an iteration that compiles is a step, too") {
    Program program(22);
    make_model(program, 4);
    const auto iterate = [&](const std::string& how, const std::string& last, const char* line,
                             std::uint64_t bytes) {
        std::vector<std::uint64_t> made;
        made.push_back(program.alloc(how + " batch@170", 512));
        made.push_back(program.alloc(how + " weights@" + line, bytes));
        made.push_back(program.alloc(how + " weights@" + line, 2 * bytes));
        if (how != "fast") {
            program.free(program.alloc("tuning"));
        }
        made.push_back(program.alloc(last + " loss@" + line, 512));
        for (const std::uint64_t each : made) {
            program.free(each);
        }
    };
    std::uint64_t expected = 24;
    SECTION("all call sites have a counterpart") {
        iterate("compiling", "compiling", "171", 4096);
        ++expected;
    }
    SECTION("one call site is the same in all iterations") {
        iterate("compiling", "fast", "171", 4096);
    }
    SECTION("one has none") {
        program.free(program.alloc("compiling batch@170", 512));
        program.free(program.alloc("compiling loss@171", 512));
    }
    SECTION("a warm-up is called at another line") {
        iterate("compiling", "compiling", "160", 4096);
    }
    SECTION("a warm-up is of another size") {
        iterate("compiling", "compiling", "171", 8192);
    }
    SECTION("it came twice") {
        iterate("compiling", "compiling", "171", 4096);
        iterate("compiling", "compiling", "171", 4096);
    }
    SECTION("there was none") {}
    for (int step = 0; step < 24; ++step) {
        iterate("fast", "fast", "171", 4096);
    }
    CHECK(steps_in(with_found_steps(program.record())) == expected);
}

TEST_CASE("what is no loop of steps has none") {
    Program program(23);
    SECTION("a model is made, and nothing else") {
        make_model(program, 200);
    }
    SECTION("call sites come in any order") {
        std::vector<std::uint64_t> live;
        std::mt19937 random(5);
        for (int i = 0; i < 4000; ++i) {
            if (live.size() > 20) {
                program.free(live.front());
                live.erase(live.begin());
            }
            live.push_back(program.alloc("site " + std::to_string(random() % 40)));
        }
    }
    SECTION("one call site returns, which says nothing") {
        for (int i = 0; i < 500; ++i) {
            program.free(program.alloc("buffer"));
        }
    }
    SECTION("there are too few iterations") {
        make_model(program, 4);
        for (int step = 0; step < 5; ++step) {
            pass(program, 4);
            optimize(program, "51");
        }
    }
    SECTION("the loop is a small part of the program") {
        for (int step = 0; step < 10; ++step) {
            program.free(program.alloc("a"));
            program.free(program.alloc("b"));
            program.free(program.alloc("c"));
        }
        make_model(program, 1000);
    }
    SECTION("nothing was allocated") {}
    CHECK(with_found_steps(program.record()).steps.empty());
}

TEST_CASE("marked steps are enough") {
    Program program(29);
    for (int step = 0; step < 20; ++step) {
        pass(program, 4);
        optimize(program, "51");
        program.mark("step");
    }
    const Recorded recorded = program.record();
    REQUIRE(recorded.report.steps.size() == 1);
    CHECK(with_found_steps(recorded).steps == recorded.report.steps);
}

TEST_CASE("steps that follow on long loading are found") {
    Program program(31);
    make_model(program, 100'000);
    for (int step = 0; step < 1000; ++step) {
        pass(program, 6);
        optimize(program, "51");
    }
    CHECK(steps_in(with_found_steps(program.record())) == 1000);
}

TEST_CASE("steps are found while a log is read") {
    Program program(37);
    make_model(program, 4);
    for (int step = 0; step < 60; ++step) {
        pass(program, 6, true);
        optimize(program, "51");
    }
    bool marked_later = false;
    SECTION("none are marked") {}
    SECTION("some are marked: too few for a verdict") {
        for (int i = 0; i < 3; ++i) {
            program.mark("epoch");
        }
    }
    SECTION("all are marked: these count") {
        for (int step = 0; step < 60; ++step) {
            pass(program, 6);
            program.mark("step");
        }
    }
    SECTION("many are marked, later") {
        marked_later = true;
        for (int step = 0; step < 6000; ++step) {  // beyond what is looked at
            pass(program, 6);
            optimize(program, "51");
        }
        for (int step = 0; step < 60; ++step) {
            pass(program, 6);
            program.mark("step");
        }
    }
    const Recorded recorded = program.record();
    const model::Report expected = with_found_steps(recorded);
    const report::ReadResult read =
        report::read_report(recorded.log(), {}, report::StepSearch::in_log);
    REQUIRE(read.report);
    CHECK(read.report->steps == expected.steps);
    CHECK(read.report->sites == expected.sites);
    if (marked_later) {
        CHECK(read.report->steps == recorded.report.steps);
    }
    // It was looked for: nothing is added a second time.
    model::Report again = *read.report;
    report::add_found_steps(again, recorded.log());
    CHECK(again.steps == read.report->steps);
}
