// The process steps aside and comes back on request: `yield`, `restore`.
#include <charconv>
#include <limits>
#include <string>
#include <utility>

#include "interpose/answers/answers.hpp"
#include "interpose/moving/mover.hpp"
#include "interpose/process/session.hpp"
#include "model/parse_size.hpp"

namespace memlab::interpose {
namespace {

/// A client waits longer.
constexpr std::uint64_t max_wait_for_move_ns = 20'000'000'000;
constexpr std::uint64_t most_timeout_s = 3600;
constexpr std::uint64_t in_ns = 1'000'000'000;

constexpr const char* cannot_step_aside =
    "this process cannot step aside: start it with MEMLAB_YIELD=on";

constexpr std::pair<std::string_view, Engine> engines[] = {{"auto", Engine::automatic},
                                                           {"pool", Engine::pool},
                                                           {"driver", Engine::driver},
                                                           {"both", Engine::both}};

/// The value of "NAME=value"; none: the word is another.
std::optional<std::string_view> value_of(std::string_view word, std::string_view name) {
    return word.size() > name.size() && word.starts_with(name) && word[name.size()] == '='
               ? std::optional(word.substr(name.size() + 1))
               : std::nullopt;
}

/// Empty, or what is wrong.
std::string read_word(std::string_view word, YieldOrder* order) {
    if (const auto keep = value_of(word, "keep")) {
        const std::optional<std::uint64_t> bytes = model::parse_size(*keep);
        order->kept_bytes = bytes.value_or(0);
        return bytes ? "" : "keep= takes a size, as 512MiB";
    }
    if (const auto gpu = value_of(word, "gpu")) {
        const auto number = number_in(*gpu, trace::DeviceInfo::max_gpus - 1);
        order->device = static_cast<CUdevice>(number.value_or(0));
        return number ? "" : "gpu= takes the number of a GPU of the program";
    }
    if (const auto timeout = value_of(word, "timeout")) {
        const auto seconds = number_in(*timeout, most_timeout_s);
        order->timeout_ns = seconds.value_or(0) * in_ns;
        return seconds ? "" : "timeout= takes a number of seconds";
    }
    if (const auto to = value_of(word, "to")) {
        constexpr std::string_view disk = "disk:";
        if (to->starts_with(disk) && to->size() > disk.size() && (*to)[disk.size()] == '/') {
            order->folder = to->substr(disk.size());
            return {};
        }
        return *to == "host" ? "" : "to= takes host, or disk: and the absolute path of a folder";
    }
    if (const auto engine = value_of(word, "engine")) {
        for (const auto& [name, value] : engines) {
            if (*engine == name) {
                order->engine = value;
                return {};
            }
        }
        return "engine= takes auto, pool, driver or both";
    }
    if (word == "prepare") {
        order->only_prepare = true;
        return {};
    }
    return "yield takes " + std::string(info(Verb::yield).arguments);
}

void answer_outcome(Verb verb, MoveOutcome outcome, Answer* answer) {
    if (outcome.problem.empty()) {
        answer_done(verb, std::move(outcome.text), answer, outcome.bytes);
    } else {
        answer->problem = std::move(outcome.problem);
    }
}

void answer_order(Session& session, Verb verb, Mover::Wanted wanted, const YieldOrder& order,
                  Answer* answer) {
    if (session.mover() == nullptr) {
        answer->problem = cannot_step_aside;
        return;
    }
    Mover& mover = *session.mover();
    MoveOutcome outcome;
    const Mover::Ticket ticket =
        mover.order(wanted, order, max_wait_for_move_ns + order.timeout_ns, &outcome);
    if (ticket.number == 0) {
        answer_outcome(verb, std::move(outcome), answer);
        return;
    }
    answer->later = [&mover, verb, ticket](Answer* later) {
        MoveOutcome done;
        if (!mover.is_over(ticket, &done)) {
            return false;
        }
        answer_outcome(verb, std::move(done), later);
        return true;
    };
}

}  // namespace

void answer_yield(Session& session, Arguments arguments, Answer* answer) {
    YieldOrder order;
    order.timeout_ns = session.settings().yield_timeout_ns;
    for (const std::string_view word : arguments) {
        if (std::string problem = read_word(word, &order); !problem.empty()) {
            answer->problem = std::move(problem);
            return;
        }
    }
    answer_order(session, Verb::yield, Mover::Wanted::out, order, answer);
}

void answer_restore(Session& session, Answer* answer) {
    answer_order(session, Verb::restore, Mover::Wanted::in, {}, answer);
}

}  // namespace memlab::interpose
