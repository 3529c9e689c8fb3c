// check_history MODEL [SETTING=VALUE...] < HISTORY
//
// Feeds the allocations and frees of a recording of tests/gpu/py/pytorch_history.py (as text, on
// stdin) to a what-if model and prints its reserved bytes wherever they change: "EVENT BYTES",
// events counted from 1 over allocations and frees; "out of memory" where the model refuses. MODEL
// is pytorch, plain, async or rmm; settings: conf (PyTorch's), limit, capacity, threshold.
// check_pytorch_history.py compares that with what was recorded.
#include <cinttypes>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "report/whatif/async_model.hpp"
#include "report/whatif/plain_model.hpp"
#include "report/whatif/pytorch_model.hpp"
#include "report/whatif/rmm_model.hpp"
#include "report/whatif/runner.hpp"

using namespace memlab::report::whatif;

namespace {

/// The file's events as a program. A step's end (a synchronization) is a mark.
Program read_history(std::istream& in, const std::map<std::string, std::string>& settings,
                     std::vector<std::uint64_t>* segments) {
    Program program;
    std::map<std::string, std::uint32_t> live;
    std::map<std::string, std::uint32_t> pending;
    std::map<std::uint64_t, bool> ends;
    if (const auto found = settings.find("ends"); found != settings.end()) {
        std::istringstream list(found->second);
        for (std::string number; std::getline(list, number, ',');) {
            ends[std::stoull(number)] = true;
        }
    }
    for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        std::string what;
        std::string address;
        words >> what >> address;
        if (what == "a") {
            Allocation allocation;
            words >> std::dec >> allocation.requested >> std::hex >> allocation.stream;
            live[address] = static_cast<std::uint32_t>(program.allocations.size());
            program.steps.push_back({StepKind::allocate, live[address]});
            program.allocations.push_back(allocation);
            if (ends.contains(program.allocations.size())) {
                program.steps.push_back({StepKind::mark, 0});
            }
        } else if (what == "f" || what == "r") {
            program.steps.push_back({StepKind::free, live.at(address)});
            pending[address] = live.at(address);
            live.erase(address);
        }
        if (what == "f" || what == "c") {
            program.steps.push_back({StepKind::complete, pending.at(address)});
            pending.erase(address);
        }
        if (what == "S") {
            segments->push_back(512 * std::stoull(address, nullptr, 16));
        }
    }
    return program;
}

std::uint64_t number(const std::map<std::string, std::string>& settings, const std::string& name,
                     std::uint64_t otherwise) {
    const auto found = settings.find(name);
    return found == settings.end() ? otherwise : std::stoull(found->second);
}

std::unique_ptr<Model> make(const std::string& name,
                            const std::map<std::string, std::string>& settings) {
    const std::uint64_t capacity = number(settings, "capacity", std::uint64_t{1} << 40);
    if (name == "plain") {
        return std::make_unique<PlainModel>(capacity);
    }
    if (name == "async") {
        return std::make_unique<AsyncModel>(capacity, number(settings, "threshold", ~0ULL));
    }
    if (name == "rmm") {
        return std::make_unique<RmmModel>(capacity, RmmSettings{});
    }
    PyTorchSettings of_pytorch;
    std::string problem;
    const auto conf = settings.find("conf");
    if (conf != settings.end() && !parse_pytorch_settings(conf->second, &of_pytorch, &problem)) {
        std::cerr << problem << "\n";
        return nullptr;
    }
    of_pytorch.allowed = number(settings, "limit", PyTorchSettings::no_limit);
    return name == "pytorch" ? std::make_unique<PyTorchModel>(capacity, of_pytorch) : nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::cerr << "check_history MODEL [SETTING=VALUE...] < HISTORY\n";
        return 2;
    }
    std::map<std::string, std::string> settings;
    for (int i = 2; i < argc; ++i) {
        const std::string argument = argv[i];
        const std::size_t equals = argument.find('=');
        settings[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
    const std::unique_ptr<Model> model = make(argv[1], settings);
    if (!model) {
        return 2;
    }
    std::vector<std::uint64_t> segments;
    const Program program = read_history(std::cin, settings, &segments);
    auto* pytorch = dynamic_cast<PyTorchModel*>(model.get());
    if (pytorch != nullptr && settings.contains("addresses")) {
        pytorch->set_segment_addresses(std::move(segments));
    }
    std::uint64_t event = 0;
    std::uint64_t last = 0;
    const Outcome outcome = run(program, *model, [&](std::size_t step, const Model& now) {
        const StepKind kind = program.steps[step].kind;
        event += kind == StepKind::allocate || kind == StepKind::free ? 1 : 0;
        if (now.meter().reserved() != last) {
            last = now.meter().reserved();
            std::printf("%" PRIu64 " %" PRIu64 "\n", event, last);
        }
    });
    if (outcome.failure) {
        std::printf("out of memory\n");
    }
    return 0;
}
