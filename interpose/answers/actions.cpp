// What is done on request: snapshots, marks, stacks, memory given back, limits, holds.
#include <algorithm>
#include <cstdint>
#include <string>

#include "interpose/answers/answers.hpp"
#include "interpose/control/oom_hold.hpp"
#include "interpose/driver/diagnostics.hpp"
#include "interpose/process/annotations.hpp"
#include "interpose/process/session.hpp"
#include "model/live/live_documents.hpp"
#include "model/parse_size.hpp"
#include "model/size_text.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t max_wait_for_frees_ns = 1'000'000'000;
constexpr std::uint64_t max_gpus = trace::DeviceInfo::max_gpus;

/// Unused memory of the pools that cache more than `kept`, back to the driver.
void give_back(Session& session, Verb verb, std::uint64_t kept, std::uint64_t until_ns,
               Answer* answer) {
    if (session.captures().capturing()) {
        answer->problem = "a stream is being captured: nothing can be given back until that ends";
        return;
    }
    const std::uint64_t bytes = session.trimmer().give_back(session, kept, until_ns);
    answer_done(verb, "gave " + model::size_text(bytes) + " of cached memory back to the driver",
                answer, bytes);
}

}  // namespace

void answer_done(Verb verb, std::string text, Answer* answer, std::optional<std::uint64_t> bytes,
                 std::optional<std::string> path) {
    answer->document = model::to_json(model::ActionDocument{.verb = std::string(info(verb).name),
                                                            .text = std::move(text),
                                                            .path = std::move(path),
                                                            .bytes = bytes});
}

void answer_snapshot(Session& session, Arguments arguments, Answer* answer) {
    const std::string name(arguments.empty() || arguments.front().empty() ? "snapshot"
                                                                          : arguments.front());
    if (session.recorder() == nullptr) {
        answer->problem = no_recording;
    } else if (name.find('/') != std::string::npos) {
        answer->problem = "a snapshot has a name, not a path: it is written beside the report";
    } else {
        std::string path;
        answer->problem = session.write_snapshot(name, max_wait_for_recorder_ns, &path);
        if (answer->problem.empty()) {
            std::string text = "wrote " + path;
            answer_done(Verb::snapshot, std::move(text), answer, {}, std::move(path));
        }
    }
}

void answer_mark(Session& session, Arguments arguments, Answer* answer) {
    if (session.recorder() == nullptr) {
        answer->problem = no_recording;
        return;
    }
    const std::string name(arguments.front());
    trace::Event event;
    event.type = trace::EventType::mark;
    event.name = session.recorder()->string_id(name);
    session.recorder()->record(event);
    answer_done(Verb::mark, "marked " + name, answer);
}

void answer_record(Session& session, Arguments arguments, Answer* answer) {
    const bool records = session.recorder() != nullptr;
    if (arguments.front() != "on" && arguments.front() != "off") {
        answer->problem = "record takes on or off";
    } else if (arguments.front() == "off" && records) {
        answer->problem =
            "recording cannot be interrupted: without the frees of a while all later figures would "
            "be wrong; stacks 0 makes it cheaper";
    } else if (arguments.front() == "on" && !records) {
        answer->problem =
            "recording cannot begin now: what was allocated before would be missing; start the "
            "program without MEMLAB_RECORD=off";
    } else {
        answer_done(Verb::record, records ? "events are recorded" : "nothing is recorded", answer);
    }
}

void answer_stacks(Session& session, Arguments arguments, Answer* answer) {
    const auto depth = number_in(arguments.front(), 256);
    if (!depth) {
        answer->problem = "stacks takes a number of frames, 0 to 256";
    } else if (session.recorder() == nullptr) {
        answer->problem = no_recording;
    } else {
        session.recorder()->set_stack_depth(static_cast<std::uint32_t>(*depth));
        session.recorder()->record(
            trace::OptionValue{"MEMLAB_STACK_DEPTH", std::to_string(*depth)});
        answer_done(Verb::stacks,
                    *depth == 0 ? "no call stacks are kept from now on"
                                : "call stacks have at most " + std::to_string(*depth) +
                                      " frames from now on",
                    answer);
    }
}

void answer_empty_cache(Session& session, Answer* answer) {
    give_back(session, Verb::empty_cache, 0, profiler::monotonic_ns() + max_wait_for_frees_ns,
              answer);
}

void answer_trim(Session& session, Arguments arguments, Answer* answer) {
    const std::optional<std::uint64_t> kept =
        arguments.empty() ? 0 : model::parse_size(arguments.front());
    if (!kept) {
        answer->problem = "trim takes a size, as 512MiB";
        return;
    }
    give_back(session, Verb::trim, *kept, 0, answer);
}

void answer_limit(Session& session, Arguments arguments, Answer* answer) {
    const std::string_view size = arguments.back();
    const std::optional<std::uint64_t> bytes = size == "none" ? 0 : model::parse_size(size);
    const bool one = arguments.size() == 2;
    const std::uint64_t gpu = one ? number_in(arguments.front(), max_gpus).value_or(max_gpus) : 0;
    if (!bytes || (*bytes == 0 && size != "none") || (one && gpu == max_gpus)) {
        answer->problem = "limit takes a GPU's number, if any, and a size, as 20GiB, or none";
        return;
    }
    int count = 0;
    call_real(&Driver::cuDeviceGetCount, &count);
    if (one && gpu >= static_cast<std::uint64_t>(std::max(count, 0))) {
        answer->problem = "the process has no GPU " + std::to_string(gpu);
        return;
    }
    const int first = static_cast<int>(gpu);
    const int end = one ? first + 1 : count;
    for (CUdevice device = first; device < end; ++device) {
        session.limits().set(device, *bytes);
    }
    if (*bytes != 0 && !session.captures().capturing()) {
        // What is cached beyond the limit would still serve allocations.
        session.trimmer().give_back(session, 0, 0);
    }
    if (session.recorder() != nullptr) {
        session.recorder()->report_limitation(
            "the limit of the GPU's memory was changed while the program ran (memlab-ctl)", 0);
    }
    const std::string which = one ? "GPU " + std::to_string(gpu) : "each GPU";
    answer_done(Verb::limit,
                *bytes == 0
                    ? which + " has no limit from now on"
                    : which + " has a limit of " + model::size_text(*bytes) + " from now on",
                answer);
}

void answer_hold_on_oom(Arguments arguments, Answer* answer) {
    const std::optional<std::uint64_t> seconds =
        arguments.size() == 1 ? OomHold::default_seconds
                              : number_in(arguments[1], OomHold::max_seconds);
    if ((arguments[0] != "on" && arguments[0] != "off") || !seconds || *seconds == 0 ||
        (arguments[0] == "off" && arguments.size() == 2)) {
        answer->problem = "hold-on-oom takes on, with a number of seconds or without, or off";
        return;
    }
    const bool on = arguments[0] == "on";
    oom_hold().set(on ? *seconds : 0);
    answer_done(
        Verb::hold_on_oom,
        on ? "a thread whose allocation fails for lack of memory waits, for " +
                 std::to_string(*seconds) + " s at most"
           : std::string("threads no longer wait at an out-of-memory; release lets those go on "
                         "that wait already"),
        answer);
}

void answer_release(Answer* answer) {
    const std::uint32_t released = oom_hold().release();
    if (released == 0) {
        answer->problem = "no thread waits at an out-of-memory";
        return;
    }
    answer_done(Verb::release, "released " + model::count_text(released, "thread"), answer);
}

}  // namespace memlab::interpose
