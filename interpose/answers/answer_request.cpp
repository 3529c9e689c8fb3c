// Which answer a request gets.
#include <charconv>
#include <optional>
#include <string>

#include "interpose/answers/answers.hpp"
#include "interpose/moving/gate.hpp"
#include "interpose/process/session.hpp"

namespace memlab::interpose {

std::optional<std::uint64_t> number_in(std::string_view text, std::uint64_t most) {
    std::uint64_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    return problem == std::errc() && end == text.data() + text.size() && number <= most
               ? std::optional(number)
               : std::nullopt;
}

namespace {

bool calls_the_driver(Verb verb) {
    return verb == Verb::empty_cache || verb == Verb::trim || verb == Verb::limit;
}

}  // namespace

void answer_request(const Request& request, Answer* answer) {
    Session* const session = Session::current();
    if (session == nullptr) {
        answer->problem = "memlab has not started in this process";
        return;
    }
    const Arguments arguments = request.arguments();
    std::optional<OtherPassage> passage;
    if (calls_the_driver(request.verb)) {
        passage.emplace();
        if (passage->must_not_call()) {
            answer->problem = "this process is away by the driver's checkpoint: restore it first";
            return;
        }
    }
    switch (request.verb) {
        case Verb::status:
            return answer_status(*session, answer);
        case Verb::sites:
            return answer_sites(*session, arguments, answer);
        case Verb::nn_modules:
            return answer_nn_modules(*session, arguments, answer);
        case Verb::pool:
            return answer_pool(*session, arguments, answer);
        case Verb::snapshot:
            return answer_snapshot(*session, arguments, answer);
        case Verb::mark:
            return answer_mark(*session, arguments, answer);
        case Verb::record:
            return answer_record(*session, arguments, answer);
        case Verb::stacks:
            return answer_stacks(*session, arguments, answer);
        case Verb::empty_cache:
            return answer_empty_cache(*session, answer);
        case Verb::trim:
            return answer_trim(*session, arguments, answer);
        case Verb::limit:
            return answer_limit(*session, arguments, answer);
        case Verb::hold_on_oom:
            return answer_hold_on_oom(arguments, answer);
        case Verb::release:
            return answer_release(answer);
        case Verb::yield:
            return answer_yield(*session, arguments, answer);
        case Verb::restore:
            return answer_restore(*session, answer);
    }
}

}  // namespace memlab::interpose
